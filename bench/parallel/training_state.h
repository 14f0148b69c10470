// The state of a rank's model that a step changes: taken out for comparison, and put back to start again. Parameters
// are whole (ZeRO stage 0), there is one stage, and nothing is queued on the rank's device.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/worker/rank_model.h"

namespace lockstep::parallel_bench {

// Elements of each bucket as reduced, padding included.
std::vector<std::int64_t> elems_of_buckets(trainer::RankModel& model);
std::vector<float> gradients_of(trainer::RankModel& model);  // 16-bit gradients are widened

// Master weights in memory order, which is the same on all ranks.
std::vector<float> masters_of(trainer::RankModel& model);

// Resets to the state before the first step: weights are `masters`, moments are zero, and no error feedback is pending.
void start_again(trainer::RankModel& model, const std::vector<float>& masters);

}  // namespace lockstep::parallel_bench
