#include "testing/ptx/apart.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <sstream>

#include "core/error.h"
#include "testing/cuda_stand_in/launch.h"

namespace lockstep::ptx {
namespace {

using Time = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{10};  // threads that are waited for share the processors with everything else

// Calls use(number) for each number of the runs but those of `executed`.
template <class Runs, class Use>
void for_numbers(Runs& runs, const Use& use) {
  use(runs.launches);
  for (auto* extent : {&runs.last.grid, &runs.last.block, &runs.last.cluster}) {
    use(extent->x);
    use(extent->y);
    use(extent->z);
  }
  use(runs.last.dynamic_shared_bytes);
  auto& counts = runs.counts;
  for (auto& number : counts.instructions) use(number);
  for (auto* number : {&counts.warp_instructions, &counts.global_requests, &counts.global_sectors,
                       &counts.global_bytes_read, &counts.global_bytes_written, &counts.shared_requests,
                       &counts.shared_wavefronts, &counts.shared_wavefronts_least, &counts.products}) {
    use(*number);
  }
}

std::vector<std::uint64_t> numbers_of(const EntryRuns& runs) {
  std::vector<std::uint64_t> numbers;
  for_numbers(runs, [&](auto number) { numbers.push_back(static_cast<std::uint64_t>(number)); });
  numbers.insert(numbers.end(), runs.executed.begin(), runs.executed.end());
  return numbers;
}

EntryRuns runs_of(std::istringstream& words) {
  EntryRuns runs;
  for_numbers(runs, [&](auto& number) { words >> number; });
  for (std::uint64_t number = 0; words >> number;) runs.executed.push_back(number);
  return runs;
}

// The text that a child writes: for each entry its name and numbers in a line, "reached" if a mutant ran, then "errors"
// and the text.
std::string written(const std::string& errors, const Interpreter& interpreter) {
  std::string text;
  for (const auto& [name, runs] : interpreter.runs()) {
    text += name;
    for (std::uint64_t value : numbers_of(runs)) text += fmt::format(" {}", value);
    text += '\n';
  }
  if (interpreter.reached_mutant()) text += "reached\n";
  return text + "errors\n" + errors;
}

Result read_back(const std::string& text) {
  Result result;
  std::istringstream in(text);
  std::string line;
  bool complete = false;
  while (!complete && std::getline(in, line)) {
    if (line == "errors") {
      complete = true;
      break;
    }
    if (line == "reached") {
      result.reached_mutant = true;
      continue;
    }
    std::istringstream words(line);
    std::string name;
    words >> name;
    result.runs[name] = runs_of(words);
    result.counts[name] = result.runs[name].counts;
  }
  result.errors = complete ? std::string(std::istreambuf_iterator<char>(in), {}) : "the process ended early";
  return result;
}

void write_all(int file, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(file, text.data() + at, text.size() - at);
    if (wrote <= 0) return;
    at += static_cast<std::size_t>(wrote);
  }
}

[[noreturn]] void run_here(Library& library, const Job& job, int to) {
  Options options = job.options;
  if (job.device_case->waits_for_others) options.patience = kPatience;
  Interpreter interpreter(library, options);
  interpreter.set_change(job.change);
  cuda_stand_in::install(&interpreter);
  std::string errors;
  try {
    errors = job.device_case->run(job.options.seed);
  } catch (const std::exception& error) {
    errors = error.what();
  }
  write_all(to, written(interpreter.fault().empty() ? errors : interpreter.fault(), interpreter));
  _exit(0);
}

struct Child {
  std::size_t index;
  pid_t process;
  int from;
  Time::time_point end;
  std::string text = {};
};

// The kernel ends a process that has used more. Processes that wait are ended by the clock, which other work delays.
constexpr double kWaits = 10;  // times the limit of CPU
void limit_cpu(double limit_s) {
  const auto seconds = static_cast<rlim_t>(limit_s);
  const rlimit limit{.rlim_cur = seconds, .rlim_max = seconds + 1};
  ::setrlimit(RLIMIT_CPU, &limit);
}

Child start(Library& library, const std::vector<Job>& jobs, std::size_t index) {
  int ends[2];
  if (::pipe(ends) != 0) throw core::Error(core::Failure::internal, "pipe failed");
  const pid_t process = ::fork();
  if (process < 0) throw core::Error(core::Failure::internal, "fork failed");
  if (process == 0) {
    ::close(ends[0]);
    limit_cpu(jobs[index].limit_s);
    run_here(library, jobs[index], ends[1]);
  }
  ::close(ends[1]);
  const auto limit =
      std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(kWaits * jobs[index].limit_s));
  return {index, process, ends[0], Time::now() + limit};
}

Result finish(Child& child, bool timed_out) {
  if (timed_out) ::kill(child.process, SIGKILL);
  ::close(child.from);
  int status = 0;
  rusage usage{};
  ::wait4(child.process, &status, 0, &usage);
  Result result = read_back(child.text);
  result.timed_out = timed_out || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU);
  if (result.timed_out) result.errors = "took too long";
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  result.cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return result;
}

}  // namespace

std::uint64_t Result::warp_instructions() const {
  std::uint64_t sum = 0;
  for (const auto& [entry, of_entry] : counts) sum += of_entry.warp_instructions;
  return sum;
}

void run_apart(Library& library, const std::vector<Job>& jobs, int workers,
               const std::function<void(std::size_t, const Result&)>& done) {
  std::vector<Child> children;
  std::size_t next = 0;
  while (next < jobs.size() || !children.empty()) {
    while (next < jobs.size() && children.size() < static_cast<std::size_t>(workers)) {
      children.push_back(start(library, jobs, next++));
    }
    std::vector<pollfd> files;
    for (const Child& child : children) files.push_back({.fd = child.from, .events = POLLIN, .revents = 0});
    ::poll(files.data(), files.size(), 200);
    for (std::size_t i = children.size(); i-- > 0;) {
      Child& child = children[i];
      bool ended = false;
      if ((files[i].revents & (POLLIN | POLLHUP)) != 0) {
        char bytes[4096];
        const ssize_t got = ::read(child.from, bytes, sizeof bytes);
        if (got > 0) child.text.append(bytes, static_cast<std::size_t>(got));
        ended = got <= 0;
      }
      const bool timed_out = !ended && Time::now() > child.end;
      if (!ended && !timed_out) continue;
      const std::size_t index = child.index;
      const Result result = finish(child, timed_out);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      done(index, result);
    }
  }
}

}  // namespace lockstep::ptx
