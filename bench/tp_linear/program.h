// Main program of tp_linear_bench.
#pragma once

#include "bench/program/program.h"
#include "bench/tp_linear/flags.h"

namespace lockstep::tp_linear {

// Runs every case that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_tp_linear(const TpLinearFlags& flags, const program::Print& print);

}  // namespace lockstep::tp_linear
