// Calls that a worker times: calls of a case, one after the other. Two sources define it, and a program links one of
// them: calls.cpp, or planted_calls.cpp, whose calls take longer by a known percentage, for tests of the regression
// gate.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace lockstep::serve {

// Mean time (us) of `calls` calls.
double us_of_calls(std::int64_t calls, const std::function<void()>& call);

// A slowdown of known size: after each call its thread computes for a percentage of the time that the call took.

// Percentage, from the environment variable LOCKSTEP_PLANTED_PERCENT; 0 without it. Throws a usage Error.
double planted_percent();

// Time that one worker thread has yet to spend. A clock is read in steps, so that a delay lasts a little too long; the
// next one is shorter by that.
class PlantedDelay {
 public:
  using Clock = std::chrono::steady_clock;
  explicit PlantedDelay(double percent) : share_(percent / 100) {}
  // Call it when a call that began at `start` has ended. Returns when the delay has passed.
  void pass(Clock::time_point start);

 private:
  double share_;
  double owed_ns_ = 0;
};

}  // namespace lockstep::serve
