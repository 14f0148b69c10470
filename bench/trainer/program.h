// mini_train from its flags to its exit status.
#pragma once

#include "bench/pipeline/output.h"
#include "bench/trainer/flags.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::mini_train {

int run_mini_train(TrainFlags flags, const pipeline::Print& print, transports::MpiWorld* mpi);
int mini_train_main(int argc, char** argv);

}  // namespace lockstep::mini_train
