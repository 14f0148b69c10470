#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths. Of a shard: one of `shards`, all as long as this but the last.
KernelCase case_of(const CrossEntropy& args);
KernelCase case_of(const CrossEntropyStats& args, std::int64_t shards);
KernelCase case_of(const CrossEntropyFinish& args);

// Of a whole vocabulary and of shards; some with padded columns.
std::vector<KernelCase> cross_entropy_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> cross_entropy_bench_cases();  // the trainer's shapes, and a batch that fits in no cache

}  // namespace lockstep::kernels
