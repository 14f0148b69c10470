// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths.
KernelCase case_of(const GemmForward& args);
KernelCase case_of(const GemmInputGradient& args);
KernelCase case_of(const GemmWeightGradient& args);

}  // namespace lockstep::kernels
