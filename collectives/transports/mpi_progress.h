// Makes MPI progress while the thread that started messages computes. MPI moves the bytes of large messages, and
// answers their handshakes, only within calls: a thread calls it periodically as long as messages are in flight.
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
  // `call` is any MPI call that does not block; it is not called again once `abort`, if any, is raised. The thread
  // begins with the first message.
  MpiProgress(std::function<void()> call, const core::AbortFlag* abort);
  ~MpiProgress();
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  // Called by the thread that owns the message.
  void began();
  void ended() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void run();
  bool is_needed() const;

  const std::function<void()> call_;
  const core::AbortFlag* const abort_;
  std::atomic<int> in_flight_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // for sleeping until there is a message
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace lockstep::transports
