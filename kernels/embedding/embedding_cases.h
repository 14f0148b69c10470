#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/embedding/embedding.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths; ids are drawn from the whole vocabulary, of which the table may be
// a shard. 0: the table is all of it.
KernelCase case_of(const EmbeddingForward& args, std::int64_t vocabulary = 0);
KernelCase case_of(const EmbeddingBackward& args, std::int64_t vocabulary = 0);

// With and without positions; of whole vocabularies and of shards.
std::vector<KernelCase> embedding_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> embedding_bench_cases();  // the trainer's shapes, and a batch that fits in no cache

}  // namespace lockstep::kernels
