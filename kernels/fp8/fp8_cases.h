// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths.
KernelCase case_of(const Fp8Encode& args);
KernelCase case_of(const Fp8Decode& args);
KernelCase case_of(const GemmFp8& args);
KernelCase case_of(const GemmFp8Add& args);

}  // namespace lockstep::kernels
