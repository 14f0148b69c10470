// The order in which an asynchronous server meets its replicas, drawn before the run from a seed and from how long each
// replica's steps are said to take: then a run repeats bit for bit, whatever threads and links do.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::trainer {

// A replica gets weights, or its gradient arrives and is applied.
struct Exchange {
  enum class Way : std::uint8_t { pull, push };
  Way way = Way::pull;
  std::int32_t replica = 0;
  std::int64_t step = 0;    // the replica's own, from 1: that the weights are for, or that the gradient is of
  std::int64_t missed = 0;  // push: updates by others since the replica's pull
  double time = 0;          // of the clock in which steps were said to take what they take
};

struct ArrivalRules {
  std::int32_t replicas = 1;
  std::int64_t pushes = 1;     // of all replicas
  std::int64_t staleness = 0;  // steps that a replica may be ahead of the slowest when it begins one
  std::function<double(std::int32_t replica, std::int64_t step)> step_time;  // positive
};

// Stale synchronous parallel (Ho et al. 2013, NIPS, section 3): a replica that has done c steps begins the next when
// c - (what the slowest has done) <= staleness; with 0 all wait for all. Messages take no time in this clock. Of two
// that end at once the lower number is first. The first steps begin with the weights that all have, without a pull;
// what would not end among the pushes is not begun.
std::vector<Exchange> arrival_order(const ArrivalRules& rules);

}  // namespace lockstep::trainer
