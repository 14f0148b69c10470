#include "bench/suite/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lockstep::suite {
namespace {

constexpr int kNotStarted = 127;  // the shells' exit status for it

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

core::Error failed(const std::string& what) {
  return {core::Failure::internal, what + ": " + std::strerror(errno)};
}

// A pipe whose write end only the child holds: when it ends, the parent reads end-of-file immediately.
std::pair<File, File> life_line() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw failed("pipe2");
  return {File(ends[0]), File(ends[1])};
}

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* argv, int output, int life, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotStarted);
  fcntl(life, F_SETFD, 0);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(kNotStarted);
}

// False if the deadline passes first.
bool wait_for_end(const File& life, core::Deadline deadline) {
  pollfd end{life.descriptor(), POLLIN, 0};
  while (!deadline.passed()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.at() - core::Clock::now());
    const auto wait_ms = std::clamp<std::int64_t>(left.count(), 0, 60'000);
    if (poll(&end, 1, static_cast<int>(wait_ms)) > 0) return true;
  }
  return false;
}

Ended ended(int status) {
  if (WIFEXITED(status)) return {WEXITSTATUS(status), "ended with status " + std::to_string(WEXITSTATUS(status))};
  const int number = WTERMSIG(status);
  return {128 + number, "was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")"};
}

}  // namespace

Ended run_process(const std::vector<std::string>& words, const std::string& output_file, core::Deadline deadline) {
  const File output(open(output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (output.descriptor() < 0) throw failed(output_file + ": cannot be written");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  auto [read_end, write_end] = life_line();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw failed("cannot fork");
  if (child == 0) become(argv.data(), output.descriptor(), write_end.descriptor(), parent);
  { const File closed(std::move(write_end)); }

  const bool in_time = wait_for_end(read_end, deadline);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw failed("waitpid");
  if (!in_time) return {static_cast<int>(core::Failure::timeout), "was killed at its deadline"};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted) {
    throw core::Error(core::Failure::internal, words[0] + " cannot be started");
  }
  return ended(status);
}

}  // namespace lockstep::suite
