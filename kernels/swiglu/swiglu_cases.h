// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/swiglu/swiglu.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "N3_C7".
KernelCase case_of(const SwigluForward& args, std::string shape = {});
KernelCase case_of(const SwigluBackward& args, std::string shape = {});

}  // namespace lockstep::kernels
