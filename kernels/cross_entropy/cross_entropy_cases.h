// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths. A shard is one of `shards`, all as long as
// this one except the last.
KernelCase case_of(const CrossEntropy& args);
KernelCase case_of(const CrossEntropyStats& args, std::int64_t shards);
KernelCase case_of(const CrossEntropyFinish& args);

}  // namespace lockstep::kernels
