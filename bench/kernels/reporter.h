// What came of the instances, as records (docs/record_format.md) and as an exit status.
#pragma once

#include <string>

#include "bench/kernels/benchmarks.h"
#include "core/record.h"

namespace lockstep::kernel_bench {

core::RunRecord run_record(const Bench& bench);
core::CeilingRecord ceiling_record(const std::string& run, const Ceiling& ceiling);
// Of the last `repetitions` trials, whose samples are put together.
core::KernelRecord kernel_record(const std::string& run, const Bench& bench, const Instance& instance,
                                 std::size_t repetitions);

// Runs what --benchmark_filter chooses, with Google Benchmark's own table, JSON or CSV on the terminal, and writes
// --json. Returns the exit status: 0, or that of the worst instance.
int run_and_report(Bench& bench);

}  // namespace lockstep::kernel_bench
