// Main program of ddp_overlap_bench.
#pragma once

#include "bench/parallel/ddp_flags.h"
#include "bench/program/program.h"

namespace lockstep::parallel_bench {

// Runs every case that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. With --serve it serves timed steps to the gate instead. Throws core::Error. Under
// mpirun all ranks call it; rank 0 prints and writes.
int run_ddp_overlap(const DdpFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
