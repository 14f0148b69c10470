// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths. A shard is one of `shards`, all as long as this one but
// for the last.
KernelCase case_of(const CrossEntropy& args);
KernelCase case_of(const CrossEntropyStats& args, std::int64_t shards);
KernelCase case_of(const CrossEntropyFinish& args);

}  // namespace lockstep::kernels
