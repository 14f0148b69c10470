// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/rotary/rotary.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths.
KernelCase case_of(const Rotary& args);

}  // namespace lockstep::kernels
