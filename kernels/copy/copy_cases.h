// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/copy/copy.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths.
KernelCase case_of(const CopyRows& args);

}  // namespace lockstep::kernels
