// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths.
KernelCase case_of(const AttentionMerge& args);

}  // namespace lockstep::kernels
