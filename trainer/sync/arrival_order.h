// The order in which an asynchronous server serves its replicas, drawn before the run from a seed and from stated step
// times of the replicas, so that a run repeats bit for bit regardless of threads and links.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::trainer {

// A replica pulls weights, or its gradient arrives and is applied.
struct Exchange {
  enum class Way : std::uint8_t { pull, push };
  Way way = Way::pull;
  std::int32_t replica = 0;
  std::int64_t step = 0;    // the replica's own step, from 1, for which the weights are or which made the gradient
  std::int64_t missed = 0;  // push: updates by others since the replica's pull
  double time = 0;          // in units of the stated step times
};

struct ArrivalRules {
  std::int32_t replicas = 1;
  std::int64_t pushes = 1;     // by all replicas
  std::int64_t staleness = 0;  // steps that a replica may be ahead of the slowest when it begins one
  std::function<double(std::int32_t replica, std::int64_t step)> step_time;  // positive
};

// Stale synchronous parallel (Ho et al. 2013, NIPS, section 3): a replica that has done c steps begins the next when c
// - (steps of the slowest) <= staleness; with 0 all wait for all. Messages take no time in this clock. If two end at
// once, the lower number goes first. The first steps begin with the initial weights, without a pull; steps that would
// not end within the pushes are not begun.
std::vector<Exchange> arrival_order(const ArrivalRules& rules);

}  // namespace lockstep::trainer
