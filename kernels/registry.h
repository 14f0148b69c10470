// All kernel cases of all families, in one explicit list: what the GPU test runs and the benchmark offers.
#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> all_test_cases();   // small and odd shapes
std::vector<KernelCase> all_bench_cases();  // the trainer's shapes

}  // namespace lockstep::kernels
