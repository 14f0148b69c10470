// A run of kernels_bench: ceilings, benchmarks, records.
#pragma once

#include "bench/kernels/benchmarks.h"

namespace lockstep::kernel_bench {

// Runs what --benchmark_filter chooses, with Google Benchmark's own table, JSON or CSV on the terminal, and writes each
// record of --json when it is known. Returns the exit status: 0, or that of the worst instance.
int run_and_report(Bench& bench);

}  // namespace lockstep::kernel_bench
