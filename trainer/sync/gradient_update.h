// An optimizer step from summed gradients that lie in a rank's stores, outside of a Step.
#pragma once

#include "trainer/worker/rank_model.h"
#include "trainer/worker/step_end.h"

namespace lockstep::trainer {

// The sum of squares of the gradients that this rank counts (workload::counts_in_norm). On the CPU.
double square_of_gradients(RankModel& model);

// Clips gradients of this norm as rules.most_norm says, and changes the weights, with the bits of StepEnd's update.
void update_from_gradients(RankModel& model, const UpdateRules& rules, double norm);

}  // namespace lockstep::trainer
