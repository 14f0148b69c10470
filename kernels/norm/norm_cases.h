#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> norm_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> norm_bench_cases();  // the trainer's shapes

}  // namespace lockstep::kernels
