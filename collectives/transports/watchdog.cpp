#include "collectives/transports/mpi_transport.h"

#include <utility>

#include "core/wait.h"

namespace lockstep::transports {

Watchdog::Watchdog(std::chrono::nanoseconds timeout, std::function<void()> expired)
    : timeout_(timeout), expired_(std::move(expired)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  std::uint64_t seen = 0;
  core::Clock::time_point since = core::Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, timeout_ / 8, [this] { return stopped_; })) {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    const bool within_a_call = calls % 2 == 1;
    if (!within_a_call || calls != seen) {
      seen = calls;
      since = core::Clock::now();
    } else if (core::Clock::now() - since >= timeout_) {
      expired_();
      return;
    }
  }
}

}  // namespace lockstep::transports
