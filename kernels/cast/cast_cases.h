#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> cast_test_cases();   // all pairs of dtypes, small and odd lengths
std::vector<KernelCase> cast_bench_cases();  // the pairs that training uses

}  // namespace lockstep::kernels
