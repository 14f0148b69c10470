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

struct ZeroForms {
  parallel::BytesByKind held{};        // weights, gradients, optimizer: from step to step
  std::int64_t most_weights = 0;       // at most, while a step runs
  std::int64_t weight_bytes_sent = 0;  // in a step
  std::int64_t gradient_bytes_sent = 0;
  double replica_bytes_sent = 0;         // gradients, too, over replicas of shards
  parallel::OffloadedBytes offloaded{};  // in a step, to the device and away from it
};
ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout);

}  // namespace lockstep::parallel_bench
