// A benchmark as a long-lived worker that times cases as it is ordered to: its orders and answers, ranks that act as
// one worker, the calls that it times, and a planted slowdown for tests of the gate.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/transports/transport.h"

namespace lockstep::serve {

// A benchmark as a long-lived worker: it prepares its cases, lists their names, and runs the orders that it reads from
// standard input until that ends. A driver (ci/gate.py) alternates between workers of two builds, a few milliseconds
// each; the waiting worker sleeps in a read.
//
// Output lines, JSON each, first {"serve": 1, "program": "kernels_bench", "cases": ["gelu_fwd/f32/...", ...]}; then for
// each order {"us": [4.1, 4.0]}, the mean time of a call in each run, or {"error": "why"}. Input lines: {"case": 0,
// "runs": 2, "calls": 1000}.

// Serves orders of the cases until they end. us_of_call(case, calls) makes that many calls and returns the mean time of
// one, in microseconds. If it throws an Error, the Error is the answer. Other output of the program must go to stderr.
using UsOfCall = std::function<double(std::size_t case_index, std::int64_t calls)>;
void serve(const std::string& program, const std::vector<std::string>& cases, const UsOfCall& us_of_call);

// For a program whose worker serves one `what` at a time: throws a usage Error if `count` is not 1.
void check_one(std::size_t count, const std::string& what);

// Ranks as one worker: rank 0 reads the orders, all run them.

// Called on every rank. us_of_call(case, calls) makes this rank's calls and returns its mean time per call; the answer
// is the slowest rank's. Without orders, ranks synchronize from time to time, so that no deadline expires. If it throws
// an Error, all ranks end.
void serve_ranks(const std::string& program, const std::vector<std::string>& cases, transports::World& world,
                 const UsOfCall& us_of_call);

// Sequential calls of a case, timed by a worker. Two sources define it, and a program links one of
// these: calls.cpp, or planted_calls.cpp, whose calls take longer by a known percentage, for tests of the regression
// gate.

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
