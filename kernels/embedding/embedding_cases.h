#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// With and without positions; of whole vocabularies and of shards.
std::vector<KernelCase> embedding_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> embedding_bench_cases();  // the trainer's shapes, and a batch that fits in no cache

}  // namespace lockstep::kernels
