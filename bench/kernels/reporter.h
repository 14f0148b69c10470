// Google Benchmark's own table, JSON or CSV on the terminal, and word of each benchmark as soon as it has ended.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace lockstep::kernel_bench {

// Called once a benchmark, when all its repetitions are done. False: it is not to be shown.
using Ended = std::function<bool(const std::string& name, std::size_t repetitions)>;

// Runs what is registered and --benchmark_filter chooses.
void run_benchmarks(Ended ended);

}  // namespace lockstep::kernel_bench
