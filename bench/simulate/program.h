// main() of simulate.
#pragma once

#include "bench/pipeline/output.h"
#include "bench/simulate/flags.h"

namespace lockstep::simulate {

// Returns the exit status; throws what is wrong.
int run_simulate(const SimulateFlags& flags, const pipeline::Print& print);

// Parses, runs, prints; returns the exit status: 0 or core::Failure's.
int simulate_main(int argc, char** argv);

}  // namespace lockstep::simulate
