#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// Causal and not, strided and packed, as many queries as keys and fewer.
std::vector<KernelCase> attention_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> attention_bench_cases();  // the trainer's shapes, and a long sequence

}  // namespace lockstep::kernels
