// --sync async: replicas that step independently, and a server on a rank of its own that applies their gradients in an
// order drawn in advance (trainer/sync/arrival_order.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/sync/predicted_time.h"
#include "trainer/train/train.h"

namespace lockstep::trainer {

ReplicaRun replica_run(const TrainOptions& options);
std::vector<Exchange> order_of(const TrainOptions& options);

// Staleness of gradients when they are applied.
struct Missed {
  double mean = 0;
  std::int64_t most = 0;
};
Missed missed_in(const std::vector<Exchange>& order);

// train() for this mode. A report covers as many pushes as there are replicas; the observer gets all reports after the
// run.
TrainResult train_async(const TrainOptions& options, const Corpus& corpus, const TrainObserver& observer);

}  // namespace lockstep::trainer
