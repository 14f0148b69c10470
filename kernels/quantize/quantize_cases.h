#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> quantize_test_cases();   // lengths that blocks divide and do not, blocks of 1 to 1000
std::vector<KernelCase> quantize_bench_cases();  // a large gradient

}  // namespace lockstep::kernels
