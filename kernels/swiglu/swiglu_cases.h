// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/swiglu/swiglu.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths. `shape` becomes part of the case's name; if it
// is empty, the name has "N3_C7".
KernelCase case_of(const SwigluForward& args, std::string shape = {});
KernelCase case_of(const SwigluBackward& args, std::string shape = {});

}  // namespace lockstep::kernels
