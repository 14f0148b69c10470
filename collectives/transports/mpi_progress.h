// Keeps messages of MPI going while the thread that started them computes. MPI moves the bytes of large messages, and
// answers to them, only within calls: a thread calls it from time to time as long as messages are under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/gate.h"

namespace lockstep::transports {

class MpiProgress {
 public:
  // `call` is any call of MPI's that does not wait; none is made any more once `abort`, if any, is raised. The thread
  // begins with the first message.
  MpiProgress(std::function<void()> call, const core::AbortFlag* abort);
  ~MpiProgress();
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  // A message, by the thread that has it.
  void began();
  void ended() { under_way_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void run();
  bool is_needed() const;

  const std::function<void()> call_;
  const core::AbortFlag* const abort_;
  std::atomic<int> under_way_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // of who sleeps until there is a message
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace lockstep::transports
