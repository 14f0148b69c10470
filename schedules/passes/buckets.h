// Which gradients are reduced together. Reductions of many small tensors cost latency, one of all cannot start before
// the backward ends: buckets lie between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

struct Parameter {
  std::int64_t elements = 0;
  std::int32_t grad_bytes = 4;        // of an element of its gradient
  std::int32_t part = -1;             // of the stage, numbered in the forward's order; -1: not known
  GroupKind group = GroupKind::data;  // that its gradient is reduced over
};

// A bucket takes parameters until it holds at least its limit. A parameter is never split, so buckets overshoot.
struct BucketRules {
  std::vector<std::int64_t> limits = {};  // bytes of the first bucket, the second, ...; the last goes on; empty: none
};

inline constexpr std::int64_t kDdpFirstBucketBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kDdpBucketBytes = std::int64_t{25} << 20;
// PyTorch's DistributedDataParallel from its second iteration on (reducer.cpp, compute_bucket_assignment_by_size and
// rebuild_buckets): the first bucket is small so that the first reduction starts early.
BucketRules ddp_rules(std::int64_t cap_bytes = kDdpBucketBytes);
BucketRules one_bucket();

struct GradientBucket {
  std::int64_t bytes = 0;
  std::int32_t part = -1;  // whose backward comes last of those in the bucket; -1: not known, the whole stage's
  GroupKind group = GroupKind::data;
  std::vector<std::size_t> parameters = {};  // indices, in the order in which their gradients come
};

// `parameters` in the order of the forward. Gradients come the other way round, and so do buckets: the first is the
// first to be full. Parameters whose gradients differ in size or group are put into different buckets, each kind with
// limits of its own.
std::vector<GradientBucket> gradient_buckets(std::span<const Parameter> parameters, const BucketRules& rules);

}  // namespace lockstep::schedules
