#include "bench/program/progress.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "core/wait.h"

namespace lockstep::program {
namespace {

constexpr const char* kClear = "\r\033[K";

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

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

void Progress::done(std::size_t done, std::size_t all) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  all_ = all;
}

void Progress::one_done() {
  const std::lock_guard lock(mutex_);
  ++done_;
}

void Progress::now(const std::string& what) {
  const std::lock_guard lock(mutex_);
  now_ = what;
}

void Progress::show() {
  const std::lock_guard lock(mutex_);
  write_line();
}

void Progress::write_line() {
  constexpr double kFirst_s = 5;
  const double seconds = terminal_.seconds() - begin_s_;
  if (!terminal_.is_terminal || seconds < kFirst_s) return;
  std::string line = fmt::format("{} of {} {}, {}", done_, all_, unit_, duration_text(seconds));
  if (done_ > 0 && done_ <= all_) {
    const double left = seconds * static_cast<double>(all_ - done_) / static_cast<double>(done_);
    line += fmt::format(", about {} left", duration_text(left));
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

// ---- Ctrl-C.

namespace {

namespace fs = std::filesystem;

// True if this process, which has it open, has locked it. A lock by another description would be refused.
bool is_locked(const fs::path& path) {
  const int again = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (again < 0) return false;
  const bool locked = flock(again, LOCK_EX | LOCK_NB) != 0;
  close(again);
  return locked;
}

std::size_t lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

bool is_partial(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.find(".partial.") != std::string::npos || name.ends_with(".partial");
}

// A file of records has its run in the first line, and a result in each other one.
bool has_no_result(const fs::path& path) {
  return is_partial(path) && (fs::is_directory(path) || lines_of(path) <= 1);
}

std::string kept_folder_text(const fs::path& folder) {
  std::error_code failed;  // the folder is left as it is
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder, failed)) entries.push_back(entry.path());
  std::size_t kept = 0;
  for (const fs::path& entry : entries) {
    if (has_no_result(entry)) {
      fs::remove_all(entry, failed);
    } else {
      ++kept;
    }
  }
  if (kept > 0) return fmt::format("{} ({} files or folders)", folder.string(), kept);
  fs::remove(folder, failed);
  return "";
}

std::string kept_file_text(const fs::path& file) {
  std::error_code failed;
  if (!has_no_result(file)) return fmt::format("{} ({} lines)", file.string(), lines_of(file));
  fs::remove(file, failed);
  return "";
}

}  // namespace

std::string kept_text() {
  std::vector<fs::path> open_ones;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", failed)) {
    const fs::path path = fs::read_symlink(entry.path(), failed);
    const bool is_file = !failed && fs::is_regular_file(path, failed) && is_partial(path);
    if ((is_file || (!failed && fs::is_directory(path, failed))) && is_locked(path)) open_ones.push_back(path);
  }
  std::sort(open_ones.begin(), open_ones.end());
  std::string text;
  for (const fs::path& path : open_ones) {
    const std::string kept = fs::is_directory(path) ? kept_folder_text(path) : kept_file_text(path);
    if (!kept.empty()) text += (text.empty() ? "" : ", ") + kept;
  }
  return text;
}

Interruption::Interruption(std::string program) {
  struct sigaction before {};
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;  // nohup, or a script's `&`
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  end_ = eventfd(0, EFD_CLOEXEC);
  waiter_ = std::jthread([this, program = std::move(program)] {
    std::array<pollfd, 2> readable{pollfd{signals_, POLLIN, 0}, pollfd{end_, POLLIN, 0}};
    while (poll(readable.data(), readable.size(), -1) < 0) {
    }
    if ((readable[0].revents & POLLIN) == 0) return;
    const std::string kept = kept_text();
    std::fprintf(stderr, "%s%s: interrupted; %s\n", isatty(STDERR_FILENO) == 1 ? kClear : "", program.c_str(),
                 kept.empty() ? "nothing was kept" : ("kept: " + kept).c_str());
    _exit(128 + SIGINT);
  });
}

Interruption::~Interruption() {
  if (!waiter_.joinable()) return;
  eventfd_write(end_, 1);
  waiter_.join();
  close(signals_);
  close(end_);
}

}  // namespace lockstep::program
