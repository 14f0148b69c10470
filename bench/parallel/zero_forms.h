// Bytes that a rank of a ZeRO run holds and sends by the formulas (parallel/parameters/zero_bytes.h), for its actual
// buckets with their padding.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/parallel/zero_flags.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/zero_bytes.h"
#include "workload/layout.h"

namespace lockstep::parallel_bench {

struct BucketElems {
  std::int64_t padded = 0;
  bool held = false;  // stage 3: gathered once per step and kept (e.g. a word embedding that is also the head's matrix)
};

// Bytes that a rank sends per step.
struct SentBytes {
  double weights = 0;    // gathers over all ranks that share them
  double secondary = 0;  // gathers from a secondary copy
  double gradients = 0;  // reductions within a set of shards; with two hops, the second hop
  double near = 0;       // the first hop
  double replicas = 0;   // weights and gradients, over replicas of shards
};

struct ZeroForms {
  parallel::BytesByKind held{};          // weights, gradients, optimizer states: between steps
  std::int64_t most_weights = 0;         // peak during a step
  SentBytes sent = {};                   // per step
  parallel::OffloadedBytes offloaded{};  // per step, to the device and back
};
ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout);

}  // namespace lockstep::parallel_bench
