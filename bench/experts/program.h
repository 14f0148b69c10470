// moe_bench.
#pragma once

#include "bench/experts/flags.h"
#include "bench/program/program.h"

namespace lockstep::experts_bench {

// Runs all that the flags ask for and prints a table; returns the exit status: 0, or core::Failure's where a row is
// wrong. Throws core::Error.
int run_experts(const ExpertsFlags& flags, const program::Print& print);

}  // namespace lockstep::experts_bench
