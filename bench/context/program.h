// Main program of seqpar_bench.
#pragma once

#include "bench/context/flags.h"
#include "bench/program/program.h"

namespace lockstep::context_bench {

// Runs every case that the flags ask for and prints a table. Returns the exit status: 0, or that of core::Failure if a
// row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_context(const ContextFlags& flags, const program::Print& print);

}  // namespace lockstep::context_bench
