// Main program of scaling: from flags to exit status.
#pragma once

#include "bench/program/program.h"
#include "bench/scaling/flags.h"

namespace lockstep::scaling {

int run_scaling(const ScalingFlags& flags, const program::Print& print);

}  // namespace lockstep::scaling
