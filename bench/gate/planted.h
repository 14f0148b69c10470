// A benchmark for testing the regression gate: three cases whose slowdown is known, as it is planted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/serve/orders.h"
#include "core/device.h"

namespace lockstep::gate {

// What a slower build would do: `percent` more of the same calls than it admits to.
class Planted {
 public:
  explicit Planted(double percent) : percent_(percent) {}
  // Calls to make where `calls` were asked for. What rounding leaves out is made up for later.
  std::int64_t calls_for(std::int64_t calls);
  // What it says of them.
  template <class Call>
  double us_of_call(std::int64_t calls, Call&& call) {
    const std::int64_t made = calls_for(calls);
    return serve::us_of_calls(made, call) * static_cast<double>(made) / static_cast<double>(calls);
  }

 private:
  double percent_;
  double owed_ = 0;
};

// From the environment, LOCKSTEP_PLANTED_PERCENT; 0 without it. Throws a usage Error.
double planted_percent();

// A call reads the next 256 KiB of 32 MiB, which no core's own cache holds; or multiplies and adds in
// registers, about as long. Nothing is shared between threads.
class MemoryCase {
 public:
  explicit MemoryCase(core::Device& device);
  ~MemoryCase();
  MemoryCase(const MemoryCase&) = delete;
  MemoryCase& operator=(const MemoryCase&) = delete;
  void call();
  double result() const { return static_cast<double>(sum_); }

 private:
  core::Device& device_;
  std::uint64_t* const words_;
  std::size_t next_ = 0;
  std::uint64_t sum_ = 0;
};

class ComputeCase {
 public:
  void call();
  double result() const { return value_; }

 private:
  double value_ = 1;
};

// Serves "memory" and "compute" from one thread, or "collective": an all-reduce of 64 KiB among two ranks, threads over
// shared memory. Returns the exit status.
int serve_planted(const std::string& which, double percent);

}  // namespace lockstep::gate
