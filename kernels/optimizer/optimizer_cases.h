// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "N1031".
KernelCase case_of(const AdamW& args, std::string shape = {}, const Draw& weights = {});
KernelCase case_of(const SumOfSquares& args, std::string shape = {});

}  // namespace lockstep::kernels
