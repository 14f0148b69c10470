// A slowdown of known size: after each call its thread computes for a share of the time that the call took.
#pragma once

#include <chrono>

namespace lockstep::serve {

// The share in percent, from the environment variable LOCKSTEP_PLANTED_PERCENT; 0 without it. Throws a usage Error.
double planted_percent();

// One worker thread's debt: the time that it has yet to spend. A clock is read in steps, so that a wait lasts a little
// too long; the next one is shorter by that.
class PlantedDelay {
 public:
  using Clock = std::chrono::steady_clock;
  explicit PlantedDelay(double percent) : share_(percent / 100) {}
  // To be called when a call that began at `start` has ended. Returns when the delay has passed.
  void pass(Clock::time_point start);

 private:
  double share_;
  double owed_ns_ = 0;
};

}  // namespace lockstep::serve
