// Errors: one exception type for failures of the environment and of input, and one check for our own bugs.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep::core {

// Why a program stops. The values are the process's exit status and equal those of nccl-tests if it has the case.
enum class Failure : int {
  internal = 1,
  cuda = 2,
  nccl = 3,
  timeout = 4,
  not_built = 5,
  usage = 6,
  wrong_data = 7,
  rank_lost = 8,
};

// A failure of the environment or of the user's input: one line that names the flag, file, call or rank.
class Error : public std::runtime_error {
 public:
  Error(Failure failure, const std::string& message) : std::runtime_error(message), failure_(failure) {}
  Failure failure() const { return failure_; }
  int exit_status() const { return static_cast<int>(failure_); }

 private:
  Failure failure_;
};

inline Error usage_error(const std::string& message) {
  return {Failure::usage, message};
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace lockstep::core

// Checks for a bug of ours, in every build: throws Error(internal) with file and line.
#define LOCKSTEP_CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::lockstep::core::check_failed(__FILE__, __LINE__, #condition, (message)))
