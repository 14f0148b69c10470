#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths.
KernelCase case_of(const GemmForward& args);
KernelCase case_of(const GemmInputGradient& args);
KernelCase case_of(const GemmWeightGradient& args);

std::vector<KernelCase> gemm_test_cases();   // small and odd shapes, all dtypes, epilogues and orders
std::vector<KernelCase> gemm_bench_cases();  // the trainer's layers: forward, input and weight gradients

}  // namespace lockstep::kernels
