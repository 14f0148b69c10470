// The clock of an emulated device: kernels take their stated times, one after another, without computing anything.
//
// Like a GPU it has a queue. A kernel that is issued before the previous one has ended starts when that one ends, not
// when the issuing thread wakes up, so wake-up times do not add up. The queue holds several kernels (a GPU's holds
// hundreds), so a thread that wakes up a few kernels late delays nothing. If it wakes up even later, the device really
// is idle until then, and the lateness is recorded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "schedules/step/timeline.h"

namespace lockstep::simulator {

class DeviceClock {
 public:
  static constexpr std::size_t kQueueDepth = 16;  // most kernels that are issued and have not ended

  // The time from which the next kernel may be issued; at most `now_ns` if it may be issued now.
  std::int64_t room_ns(std::int64_t now_ns) {
    while (!ends_ns_.empty() && ends_ns_.front() <= now_ns) ends_ns_.pop_front();
    return ends_ns_.size() < kQueueDepth ? now_ns : ends_ns_.front();
  }

  // Issues a kernel whose inputs are ready at `ready_ns`; returns its start and end.
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

  std::int64_t late_ns() const { return late_ns_; }  // largest lateness so far

 private:
  std::int64_t free_ns_ = 0;
  std::int64_t late_ns_ = 0;
  std::deque<std::int64_t> ends_ns_;
};

}  // namespace lockstep::simulator
