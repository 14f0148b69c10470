// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths.
KernelCase case_of(const GemmForward& args);
KernelCase case_of(const GemmInputGradient& args);
KernelCase case_of(const GemmWeightGradient& args);

}  // namespace lockstep::kernels
