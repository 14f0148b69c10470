#include "bench/program/progress.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "core/wait.h"

namespace lockstep::program {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClear = "\r\033[K";

std::string time_text(double seconds) {
  return seconds < 120 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace

Progress::Terminal Progress::of_stderr() {
  return {isatty(STDERR_FILENO) == 1,
          [begin = core::Clock::now()] { return core::us_between(begin, core::Clock::now()) / 1e6; },
          [](const std::string& text) {
            std::fputs(text.c_str(), stderr);
            std::fflush(stderr);
          },
          true};
}

Progress::Progress(std::string unit, std::size_t all, Terminal terminal)
    : unit_(std::move(unit)), terminal_(std::move(terminal)), begin_s_(terminal_.seconds()), all_(all) {
  if (!terminal_.is_terminal || !terminal_.ticks) return;
  ticker_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, stop, std::chrono::seconds(1), [&stop] { return stop.stop_requested(); }))
      write_line();
  });
}

Progress::~Progress() {
  ticker_ = {};  // before the members that it uses
  clear();
}

void Progress::done(std::size_t done, std::size_t all, const std::string& now) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  all_ = all;
  now_ = now;
}

void Progress::one_done() {
  const std::lock_guard lock(mutex_);
  ++done_;
}

void Progress::show() {
  const std::lock_guard lock(mutex_);
  write_line();
}

void Progress::write_line() {
  constexpr double kFirst_s = 5;
  const double seconds = terminal_.seconds() - begin_s_;
  if (!terminal_.is_terminal || seconds < kFirst_s) return;
  std::string line = fmt::format("{} of {} {}, {}", done_, all_, unit_, time_text(seconds));
  if (done_ > 0 && done_ <= all_) {
    const double left = seconds * static_cast<double>(all_ - done_) / static_cast<double>(done_);
    line += fmt::format(", about {} left", time_text(left));
  }
  if (!now_.empty()) line += ": " + now_;
  constexpr std::size_t kWidth = 79;  // a longer line would not be overwritten
  terminal_.write(kClear + line.substr(0, kWidth));
  is_shown_ = true;
}

void Progress::clear() {
  if (std::exchange(is_shown_, false)) terminal_.write(kClear);
}

Print Progress::around(Print print) {
  return [this, print = std::move(print)](const std::string& text) {
    const std::lock_guard lock(mutex_);
    const bool was_shown = is_shown_;
    clear();
    print(text);
    if (was_shown && text.ends_with('\n')) write_line();
  };
}

namespace {

// True if this process, which has the file open, has locked it: a lock by another description is refused.
bool is_locked(const fs::path& path) {
  const int again = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool locked = again >= 0 && flock(again, LOCK_EX | LOCK_NB) != 0;
  if (again >= 0) close(again);
  return locked;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::ptrdiff_t lines_of(const fs::path& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

bool is_partial(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.find(".partial.") != std::string::npos || name.ends_with(".partial");
}

// A file of records has its run in the first line, and a result in each other one.
bool has_no_result(const fs::path& path) {
  return is_partial(path) && (fs::is_directory(path) || lines_of(path) <= 1);
}

}  // namespace

std::string kept_text() {
  std::string text;
  std::error_code failed;  // a file that cannot be removed stays
  for (const fs::path& descriptor : entries_of("/proc/self/fd")) {
    const fs::path path = fs::read_symlink(descriptor, failed);
    const bool is_folder = fs::is_directory(path, failed);
    if ((!is_folder && !is_partial(path)) || !is_locked(path)) continue;
    std::ptrdiff_t kept = 0;
    for (const fs::path& part : is_folder ? entries_of(path) : std::vector{path}) {
      const bool is_kept = !has_no_result(part);
      if (!is_kept) fs::remove_all(part, failed);
      kept += is_kept ? 1 : 0;
    }
    if (kept == 0 && is_folder) fs::remove(path, failed);
    if (kept == 0) continue;
    text += fmt::format("{}{} ({} {})", text.empty() ? "" : ", ", path.string(), is_folder ? kept : lines_of(path),
                        is_folder ? "files or folders" : "lines");
  }
  return text;
}

Interruption::Interruption(const std::string& program) {
  struct sigaction before {};
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;  // nohup, or a script's `&`
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  waiter_ = std::jthread([this, program, set] {
    int signal = 0;
    sigwait(&set, &signal);
    if (ends_) return;
    const std::string kept = kept_text();
    std::fprintf(stderr, "%s%s: interrupted; %s\n", isatty(STDERR_FILENO) == 1 ? kClear : "", program.c_str(),
                 kept.empty() ? "nothing was kept" : ("kept: " + kept).c_str());
    _exit(128 + SIGINT);
  });
}

Interruption::~Interruption() {
  if (!waiter_.joinable()) return;
  ends_ = true;
  pthread_kill(waiter_.native_handle(), SIGINT);
}

}  // namespace lockstep::program
