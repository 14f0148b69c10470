// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "N1031".
KernelCase case_of(const ResidualAdd& args, std::string shape = {});

}  // namespace lockstep::kernels
