// What was run and what came of it, as records (docs/record_format.md).
#pragma once

#include <string>
#include <vector>

#include "bench/kernels/benchmarks.h"
#include "core/device_cuda.h"
#include "core/record.h"

namespace lockstep::kernel_bench {

std::vector<core::CudaDeviceInfo> bench_gpus(const Bench& bench);  // that it runs on: the first, or none
core::RunRecord run_record(const Bench& bench);
core::CeilingRecord ceiling_record(const std::string& run, const Ceiling& ceiling);
// Of the last `repetitions` trials, whose samples are put together.
core::KernelRecord kernel_record(const std::string& run, const Bench& bench, const Instance& instance,
                                 std::size_t repetitions);

}  // namespace lockstep::kernel_bench
