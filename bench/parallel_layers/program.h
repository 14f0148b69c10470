// tp_linear_bench.
#pragma once

#include "bench/parallel_layers/flags.h"
#include "bench/pipeline/output.h"

namespace lockstep::layer_bench {

// Runs all that the flags ask for and prints a table; returns the exit status: 0, or core::Failure's where a row is
// wrong. Throws core::Error.
int run_layers(const LayerFlags& flags, const pipeline::Print& print);

// main(): parses, runs, prints; returns the exit status.
int tp_linear_main(int argc, char** argv);

}  // namespace lockstep::layer_bench
