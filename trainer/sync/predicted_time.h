// Predicts the step time of a run from the times that its straggler states.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/sync/arrival_order.h"
#include "trainer/sync/sync_options.h"

namespace lockstep::trainer {

struct ReplicaRun {
  SyncOptions sync;
  Straggler straggler;
  std::int32_t replicas = 1;
  std::int64_t steps = 1;
  std::uint64_t seed = 1;
};

// Order of --sync async: for each step as many pushes as there are replicas, so that the run trains on as many tokens
// as in any other mode. A step takes time 1, times the straggler's factor, plus a random part up to the jitter.
std::vector<Exchange> order_of(const ReplicaRun& run);

// Mean step time in ms if each replica's own steps take straggler.step_ms times its factor, and messages and updates
// take no time. Replicas that sum gradients wait for the slowest in every step, those that average wait at the end of
// every round, and asynchronous ones where the order and the staleness bound require it.
double predicted_step_ms(const ReplicaRun& run);

}  // namespace lockstep::trainer
