// How long to leave alone what is asked for again and again, where asking costs others something: a GPU's driver has
// locks that the launches of other ranks need.
#pragma once

#include <algorithm>
#include <thread>

#include "core/wait.h"

namespace lockstep::core {

// Begins with the wait. After each look in vain, pause() leaves alone for a thirty-second part of what has been waited
// so far, 100 us at most, so that the end is seen 3 % of the wait late.
class Backoff {
 public:
  static constexpr std::chrono::microseconds kLongest{100};
  static std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited) {
    return std::min<std::chrono::nanoseconds>(waited / 32, kLongest);
  }

  // Yields in short pauses: the system ends a sleep 50 us late itself.
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
