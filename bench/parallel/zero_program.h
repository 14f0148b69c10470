// Main program of zero_bench.
#pragma once

#include "bench/parallel/zero_flags.h"
#include "bench/program/program.h"

namespace lockstep::parallel_bench {

// Runs every row that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_zero_bench(const ZeroFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
