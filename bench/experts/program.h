// Main program of moe_bench.
#pragma once

#include "bench/experts/flags.h"
#include "bench/program/program.h"

namespace lockstep::experts_bench {

// Runs every case that the flags ask for and prints a table. Returns the exit status: 0, or that of core::Failure if a
// row is wrong. Throws core::Error.
int run_experts(const ExpertsFlags& flags, const program::Print& print);

}  // namespace lockstep::experts_bench
