// An optimizer step from summed gradients that lie in a rank's stores, outside of a Step.
#pragma once

#include "trainer/worker/rank_model.h"
#include "trainer/worker/step_end.h"

namespace lockstep::trainer {

// Sum of squares of the gradients that this rank counts (workload::counts_in_norm). CPU only.
double square_of_gradients(RankModel& model);

// Clips gradients of this norm to rules.most_norm and updates the weights, with the same bits as StepEnd's update.
void update_from_gradients(RankModel& model, const UpdateRules& rules, double norm);

}  // namespace lockstep::trainer
