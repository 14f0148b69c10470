// seqpar_bench.
#pragma once

#include "bench/context/flags.h"
#include "bench/program/program.h"

namespace lockstep::context_bench {

// Runs all that the flags ask for and prints a table; returns the exit status: 0, or core::Failure's where a row is
// wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_context(const ContextFlags& flags, const program::Print& print);

}  // namespace lockstep::context_bench
