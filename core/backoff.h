// How long to pause between polls if polling costs others something: a GPU's driver has locks that the launches of
// other ranks need.
#pragma once

#include <algorithm>
#include <thread>

#include "core/wait.h"

namespace lockstep::core {

// Starts timing when it is made. After each unsuccessful poll, pause() waits for 1/32 of the time waited so far, at
// most 100 us, so that completion is seen at most 3 % of the wait late.
class Backoff {
 public:
  static constexpr std::chrono::microseconds kLongest{100};
  static std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited) {
    return std::min<std::chrono::nanoseconds>(waited / 32, kLongest);
  }

  // Yields for short pauses: the system wakes a sleeping thread about 50 us late.
  void pause() const {
    const Clock::time_point now = Clock::now();
    const auto span = pause_after(now - start_);
    if (span >= kLongest) return std::this_thread::sleep_for(span);
    do {
      std::this_thread::yield();
    } while (Clock::now() < now + span);
  }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace lockstep::core
