// Main program of mini_train: from flags to exit status.
#pragma once

#include "bench/program/program.h"
#include "bench/trainer/flags.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::mini_train {

int run_mini_train(TrainFlags flags, const program::Print& print, transports::MpiWorld* mpi);

}  // namespace lockstep::mini_train
