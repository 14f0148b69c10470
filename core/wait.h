// Deadlines: nothing in Lockstep waits without one.
#pragma once

#include <chrono>
#include <string>

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

}  // namespace lockstep::core
