// The bytes that a rank of a ZeRO run holds and sends by the formulas (parallel/parameters/zero_bytes.h), for the
// buckets that it has in truth, their padding included.
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
  bool held = false;  // with stage 3: gathered once a step, and kept (a word embedding that is the head's matrix, too)
};

// That a rank sends in a step.
struct SentBytes {
  double weights = 0;    // gathers over all ranks that share them
  double secondary = 0;  // gathers from a secondary copy
  double gradients = 0;  // reductions in a set of shards; in two hops, the second
  double near = 0;       // the first hop
  double replicas = 0;   // of gradients, too, over replicas of shards
};

struct ZeroForms {
  parallel::BytesByKind held{};          // weights, gradients, optimizer: from step to step
  std::int64_t most_weights = 0;         // at most, while a step runs
  SentBytes sent = {};                   // in a step
  parallel::OffloadedBytes offloaded{};  // in a step, to the device and away from it
};
ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout);

}  // namespace lockstep::parallel_bench
