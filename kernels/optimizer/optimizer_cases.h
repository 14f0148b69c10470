#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> optimizer_test_cases();   // small and odd lengths, all dtypes, early and late steps
std::vector<KernelCase> optimizer_bench_cases();  // from what fits a cache to what does not

}  // namespace lockstep::kernels
