// scaling from flags to exit status.
#pragma once

#include "bench/pipeline/output.h"
#include "bench/scaling/flags.h"

namespace lockstep::scaling {

int run_scaling(const ScalingFlags& flags, const pipeline::Print& print);
int scaling_main(int argc, char** argv);

}  // namespace lockstep::scaling
