// What was run and what came of it, as records (docs/record_format.md).
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

}  // namespace lockstep::kernel_bench
