// Records of a run (docs/record_format.md), and its results in Google Benchmark's own formats.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/kernels/benchmarks.h"
#include "core/device_cuda.h"
#include "core/record.h"

namespace lockstep::kernel_bench {

std::vector<core::CudaDeviceInfo> bench_gpus(const Bench& bench);  // that it uses: the first one, or none
core::RunRecord run_record(const Bench& bench);
core::CeilingRecord ceiling_record(const std::string& run, const Ceiling& ceiling);
// Makes the record of an instance from the samples of its last `repetitions` trials.
core::KernelRecord kernel_record(const std::string& run, const Bench& bench, const Instance& instance,
                                 std::size_t repetitions);

// ---- Prints Google Benchmark's own table, JSON or CSV, and reports each benchmark as soon as it has ended.

// Called once per benchmark, when all its repetitions are done. Returns whether its row is shown.
using Ended = std::function<bool(const std::string& name, std::size_t repetitions)>;

// Runs the registered benchmarks that --benchmark_filter chooses.
void run_benchmarks(Ended ended);

}  // namespace lockstep::kernel_bench
