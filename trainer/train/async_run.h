// --sync async: replicas that step by themselves, and a server on a rank of its own that applies their gradients in an
// order drawn before (trainer/sync/arrival_order.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/sync/predicted_time.h"
#include "trainer/train/train.h"

namespace lockstep::trainer {

ReplicaRun replica_run(const TrainOptions& options);
std::vector<Exchange> order_of(const TrainOptions& options);

// How stale gradients are when they are applied.
struct Missed {
  double mean = 0;
  std::int64_t most = 0;
};
Missed missed_in(const std::vector<Exchange>& order);

// What train() does for it. A report is of as many pushes as there are replicas; all are told when the run has ended.
TrainResult train_async(const TrainOptions& options, const Corpus& corpus, const TrainObserver& observer);

}  // namespace lockstep::trainer
