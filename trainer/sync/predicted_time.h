// What a run's steps take by the times that its straggler states, before it runs.
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

// --sync async's order: as many pushes as there are replicas for each step, so that as many tokens are trained on as in
// any other way. A step is said to take 1, times the straggler's factor, and up to the jitter more, drawn.
std::vector<Exchange> order_of(const ReplicaRun& run);

// Mean time of a step in ms, where each replica's own steps take straggler.step_ms times its factor, and messages and
// updates take nothing: replicas that sum gradients wait for the slowest in every step, those that average at the end
// of every round, and async's where its order and its bound say so.
double predicted_step_ms(const ReplicaRun& run);

}  // namespace lockstep::trainer
