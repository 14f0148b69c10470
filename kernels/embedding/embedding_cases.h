// Test cases made from arguments; kernels/registry.h declares those that the registry lists.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/embedding/embedding.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths. Ids are drawn from the whole vocabulary, of
// which the table may be a shard. vocabulary = 0: the table is the whole vocabulary.
KernelCase case_of(const EmbeddingForward& args, std::int64_t vocabulary = 0);
KernelCase case_of(const EmbeddingBackward& args, std::int64_t vocabulary = 0);

}  // namespace lockstep::kernels
