// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/gelu/gelu.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "N1031".
KernelCase case_of(const GeluForward& args, std::string shape = {});
KernelCase case_of(const GeluBackward& args, std::string shape = {});

}  // namespace lockstep::kernels
