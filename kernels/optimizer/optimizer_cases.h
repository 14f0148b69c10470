// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths. `shape` becomes part of the case's name; if it
// is empty, the name has "N1031".
KernelCase case_of(const AdamW& args, std::string shape = {}, const Draw& weights = {});
KernelCase case_of(const SumOfSquares& args, std::string shape = {});

}  // namespace lockstep::kernels
