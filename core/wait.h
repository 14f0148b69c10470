// Deadlines: nothing in Lockstep waits without one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace lockstep::core {

using Clock = std::chrono::steady_clock;

inline double us_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

class Deadline {
 public:
  static Deadline after(std::chrono::nanoseconds span) { return Deadline(Clock::now() + span); }
  bool passed() const { return Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// How long to pause between polls if polling costs others something: a GPU's driver has locks that the launches of
// other ranks need.

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

// Sleeping on an address that several ranks, threads or processes, can see (Linux futex).

// Sleeps while *word == expected, until woken, or for at most `longest`. May return early.
void futex_wait(const void* word, std::uint32_t expected, std::chrono::nanoseconds longest);
void futex_wake_all(const void* word);

// Deadlines for calls of other libraries that have no timeout.

// Runs the call on a thread of its own and waits for it. Returns true if the call has returned; what it threw is
// rethrown here. Returns false at the timeout; the call then continues on its thread, so everything that it uses must
// be owned by it or shared with it.
bool returns_in_time(std::function<void()> call, std::chrono::nanoseconds timeout);

}  // namespace lockstep::core
