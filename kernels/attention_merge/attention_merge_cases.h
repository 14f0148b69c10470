// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths.
KernelCase case_of(const AttentionMerge& args);

}  // namespace lockstep::kernels
