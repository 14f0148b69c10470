// The state that a step changes in a rank's model, taken out to be compared and put back to start again. Whole
// parameters (ZeRO 0) of one stage; nothing is queued on the rank's device.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/worker/rank_model.h"

namespace lockstep::parallel_bench {

// Bucket by bucket, as they are reduced: with padding.
std::vector<std::int64_t> elems_of_buckets(trainer::RankModel& model);
std::vector<float> gradients_of(trainer::RankModel& model);  // narrow ones widened

// In the order in which they lie: the same on all ranks.
std::vector<float> masters_of(trainer::RankModel& model);

// Weights are `masters`, moments zero, and nothing is owed by compressed gradients: as before the first step.
void start_again(trainer::RankModel& model, const std::vector<float>& masters);

}  // namespace lockstep::parallel_bench
