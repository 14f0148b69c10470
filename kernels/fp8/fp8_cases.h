// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths.
KernelCase case_of(const Fp8Encode& args);
KernelCase case_of(const Fp8Decode& args);
KernelCase case_of(const GemmFp8& args);
KernelCase case_of(const GemmFp8Add& args);

}  // namespace lockstep::kernels
