// main() of simulate.
#pragma once

#include "bench/program/program.h"
#include "bench/simulate/flags.h"

namespace lockstep::simulate {

// Returns the exit status; throws core::Error.
int run_simulate(const SimulateFlags& flags, const program::Print& print);

}  // namespace lockstep::simulate
