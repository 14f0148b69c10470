// The clock of an emulated device: kernels take their time one after another without anybody computing.
//
// As a GPU it has a queue. A kernel that is put there before the one before it has ended starts when that one ends, not
// when the thread that issued it woke up again: what waking up costs is not added to each kernel. The queue holds
// several kernels (a GPU's holds hundreds), so that a thread that is woken some kernels late holds up nobody. Where it
// comes later than that, the device stands still until it comes, for real, and the lateness is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "schedules/step/timeline.h"

namespace lockstep::simulator {

class DeviceClock {
 public:
  static constexpr std::size_t kQueueDepth = 16;  // kernels that have been issued and have not ended

  // When the next kernel may be issued; not after `now_ns` if it may be at once.
  std::int64_t room_ns(std::int64_t now_ns) {
    while (!ends_ns_.empty() && ends_ns_.front() <= now_ns) ends_ns_.pop_front();
    return ends_ns_.size() < kQueueDepth ? now_ns : ends_ns_.front();
  }

  // Issues a kernel whose inputs are there at `ready_ns`; returns its end.
  struct Kernel {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  Kernel issue(std::int64_t ready_ns, std::int64_t duration_ns, std::int64_t now_ns) {
    const std::int64_t could_start = std::max(ready_ns, free_ns_);
    const std::int64_t start = std::max(could_start, now_ns);
    late_ns_ = std::max(late_ns_, start - could_start);
    free_ns_ = start + duration_ns;
    ends_ns_.push_back(free_ns_);
    return {start, free_ns_};
  }

  std::int64_t late_ns() const { return late_ns_; }  // the worst so far

 private:
  std::int64_t free_ns_ = 0;
  std::int64_t late_ns_ = 0;
  std::deque<std::int64_t> ends_ns_;
};

}  // namespace lockstep::simulator
