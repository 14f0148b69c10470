// zero_bench.
#pragma once

#include "bench/parallel/zero_flags.h"
#include "bench/program/program.h"

namespace lockstep::parallel_bench {

// Runs all that the flags ask for, prints a table, writes the records; returns the exit status: 0, or core::Failure's
// where a row is wrong. Throws core::Error.
// Under mpirun all ranks call it; rank 0 prints and writes.
int run_zero_bench(const ZeroFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
