#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> reduction_test_cases();   // all dtypes and operations, 1 to 8 sources, odd lengths
std::vector<KernelCase> reduction_bench_cases();  // sums of 2, 4 and 8 buffers

}  // namespace lockstep::kernels
