// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/norm/norm.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "R5_C3".
KernelCase case_of(const NormForward& args, std::string shape = {});
KernelCase case_of(const NormBackward& args, std::string shape = {});

}  // namespace lockstep::kernels
