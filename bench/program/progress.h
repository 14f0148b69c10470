// Long work on a terminal: how far it is, and what it has written when Ctrl-C ends it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "bench/program/program.h"

namespace lockstep::program {

// Shows how far long work is: from its sixth second on one line on stderr, which is rewritten in place, with what is
// done of all, the time so far and an estimate of the rest. Shows nothing if stderr is no terminal. Any thread may call
// its functions.
class Progress {
 public:
  // Tests give their own.
  struct Terminal {
    bool is_terminal = false;
    std::function<double()> seconds;  // since any fixed time
    std::function<void(const std::string& text)> write;
    bool ticks = false;  // a thread rewrites the line each second, also while one piece of work takes long
  };
  static Terminal of_stderr();

  // `unit`: "rows". `all`: their number; 0: not known yet.
  Progress(std::string unit, std::size_t all, Terminal terminal = of_stderr());
  ~Progress();  // removes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void one_done();
  void done(std::size_t done, std::size_t all, const std::string& now = "");  // `now`: what is worked on
  void show();                                                                // rewrites the line if it is due
  Print around(Print print);  // for output of the program itself, which the line makes room for

 private:
  void write_line();
  void clear();

  const std::string unit_;
  const Terminal terminal_;
  const double begin_s_;
  std::mutex mutex_;
  std::size_t all_;
  std::size_t done_ = 0;
  std::string now_;
  bool is_shown_ = false;
  std::condition_variable_any ends_;
  std::jthread ticker_;
};

// Names what a program that ends early leaves: "rows.partial.jsonl (37 lines), checkpoints (2 files or folders)". These
// are the record files and folders that this process has open and locked (core/output_file.h). Record files without a
// result, partial folders and empty folders are removed.
std::string kept_text();

// While it exists, Ctrl-C (SIGINT) prints what was kept on stderr and ends the process with status 130, as shells
// report that signal. Made before all other threads, which must not take the signal.
class Interruption {
 public:
  explicit Interruption(const std::string& program);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  std::atomic<bool> ends_ = false;
  std::jthread waiter_;
};

}  // namespace lockstep::program
