// ddp_overlap_bench.
#pragma once

#include "bench/parallel/ddp_flags.h"
#include "bench/program/program.h"

namespace lockstep::parallel_bench {

// Runs all that the flags ask for, prints a table, writes the records; returns the exit status: 0, or core::Failure's
// where a row is wrong. With --serve it is a worker for the gate instead. Throws core::Error.
// Under mpirun all ranks call it; rank 0 prints and writes.
int run_ddp_overlap(const DdpFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
