// A layout's training step as the one case of a worker (bench/serve/orders.h), in place of a training run.
#pragma once

#include <string>

#include "bench/trainer/flags.h"
#include "trainer/data/corpus.h"

namespace lockstep::mini_train {

std::string step_name(const trainer::TrainOptions& options);  // "step/nano/bf16/dp 2, tp 1, pp 1/threads:1"

// A call is a step. Steps go on from call to call, over the text and the schedule of rates.
void serve_steps(const TrainFlags& flags, const trainer::Corpus& corpus);

}  // namespace lockstep::mini_train
