// A deadline for calls that block and cannot be interrupted: a thread checks periodically whether the call that was
// active at its last checks still is.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::transports {

class Watchdog {
 public:
  // `expired` is called once, on the watchdog's thread, when a call takes longer than the timeout (by at most an
  // eighth).
  Watchdog(std::chrono::nanoseconds timeout, std::function<void()> expired);
  ~Watchdog();

  // Call them around each watched call, on its thread. Each costs an addition.
  void enter() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { calls_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void watch();

  std::chrono::nanoseconds timeout_;
  std::function<void()> expired_;
  std::atomic<std::uint64_t> calls_{0};  // odd: within a call
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep::transports
