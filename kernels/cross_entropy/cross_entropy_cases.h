#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// Of a whole vocabulary and of shards; some with padded columns.
std::vector<KernelCase> cross_entropy_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> cross_entropy_bench_cases();  // the trainer's shapes, and a batch that fits in no cache

}  // namespace lockstep::kernels
