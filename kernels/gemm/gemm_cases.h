#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> gemm_test_cases();   // small and odd shapes, all dtypes, epilogues and orders
std::vector<KernelCase> gemm_bench_cases();  // the trainer's layers: forward, input and weight gradients

}  // namespace lockstep::kernels
