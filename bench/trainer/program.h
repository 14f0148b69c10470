// The program mini_train, also as a worker that serves steps.
#pragma once

#include <string>

#include "bench/program/program.h"
#include "bench/trainer/flags.h"
#include "trainer/data/corpus.h"

namespace lockstep::mini_train {

// A layout's training step as the only case of a worker (bench/serve/orders.h), instead of a training run.

std::string step_name(const trainer::TrainOptions& options);  // "step/nano/bf16/dp 2, tp 1, pp 1/threads:1"

// Each call is one step. Steps continue from call to call through the text and the learning-rate schedule.
void serve_steps(const TrainFlags& flags, const trainer::Corpus& corpus);

}  // namespace lockstep::mini_train

// Main program of mini_train: from flags to exit status.
namespace lockstep::transports {

class MpiWorld;
}

namespace lockstep::mini_train {

int run_mini_train(TrainFlags flags, const program::Print& print, transports::MpiWorld* mpi);

}  // namespace lockstep::mini_train
