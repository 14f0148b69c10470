#include "collectives/transports/mpi_progress.h"

#include <chrono>
#include <utility>

namespace lockstep::transports {
namespace {

// Pause between two calls. A call takes about a microsecond: a fiftieth of a core.
constexpr auto kNap = std::chrono::microseconds(50);

}  // namespace

MpiProgress::MpiProgress(std::function<void()> call, const core::AbortFlag* abort)
    : call_(std::move(call)), abort_(abort) {}

MpiProgress::~MpiProgress() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_.store(true);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MpiProgress::began() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  if (in_flight_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  const std::scoped_lock lock(mutex_);  // the thread has checked before, or sleeps and is woken
  changed_.notify_one();
}

void MpiProgress::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [this] { return stopped_ || is_needed(); });
    lock.unlock();
    while (!stopped_ && is_needed()) {
      call_();
      std::this_thread::sleep_for(kNap);
    }
    lock.lock();
  }
}

bool MpiProgress::is_needed() const {
  return in_flight_.load(std::memory_order_relaxed) > 0 && (abort_ == nullptr || !abort_->raised());
}

}  // namespace lockstep::transports
