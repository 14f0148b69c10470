// Cases of arguments; those that the registry lists are in kernels/registry.h.
#pragma once

#include "kernels/base/kernel_case.h"
#include "kernels/embedding/embedding.h"

namespace lockstep::kernels {

// The case of arguments whose views have dtypes and lengths; ids are drawn from the whole vocabulary, of which the
// table may be a shard. 0: the table is all of it.
KernelCase case_of(const EmbeddingForward& args, std::int64_t vocabulary = 0);
KernelCase case_of(const EmbeddingBackward& args, std::int64_t vocabulary = 0);

}  // namespace lockstep::kernels
