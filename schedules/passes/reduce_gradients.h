// The pass that adds reductions of gradients, in buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Gradient buckets: the gradients that are reduced together. Many small reductions cost latency, and a single one
// cannot start before the backward ends; buckets are between the two.

struct Parameter {
  std::int64_t elements = 0;
  std::int32_t grad_bytes = 4;        // per element of its gradient
  std::int32_t part = -1;             // part of the stage, numbered in forward order; -1: unknown
  GroupKind group = GroupKind::data;  // group over which its gradient is reduced
};

// A bucket takes parameters until it holds at least its limit. A parameter is never split, so buckets overshoot.
struct BucketRules {
  std::vector<std::int64_t> limits =
      {};  // bytes of the first bucket, the second, ...; the last limit repeats; empty: no limit
};

inline constexpr std::int64_t kDdpFirstBucketBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kDdpBucketBytes = std::int64_t{25} << 20;
// PyTorch's DistributedDataParallel from its second iteration on (reducer.cpp, compute_bucket_assignment_by_size and
// rebuild_buckets): the first bucket is small so that the first reduction starts early.
BucketRules ddp_rules(std::int64_t cap_bytes = kDdpBucketBytes);
BucketRules one_bucket();

struct GradientBucket {
  std::int64_t bytes = 0;
  std::int32_t part = -1;  // the bucket's part whose backward comes last; -1: unknown, the whole stage
  GroupKind group = GroupKind::data;
  std::vector<std::size_t> parameters = {};  // indices, in the order in which gradients are made
};

// Buckets of `parameters`, which are in forward order. Gradients are made in reverse order, and so are the buckets: the
// first one is full first. Parameters whose gradients differ in element size or group go into different buckets; the
// limits apply to each such kind on its own.
std::vector<GradientBucket> gradient_buckets(std::span<const Parameter> parameters, const BucketRules& rules);

// Adds reductions of gradients over data-parallel ranks to a step: REDUCE_GRAD tasks in lane reduce.

struct ReduceOptions {
  Comm comm = Comm::all_reduce;   // or reduce_scatter: each rank keeps its shard
  bool every_microbatch = false;  // false: gradients accumulate and are reduced after a stage's last microbatch
  // A bucket is reduced as soon as its last gradient is made. If false, buckets are reduced when the rank has made all
  // gradients, and with `every_microbatch` the rank waits for those of one microbatch before the next.
  bool overlapped = true;
  // Also sums the reduced gradients over groups of kind `replicas` (HSDP), in a separate lane that overlaps the
  // reduction of the next bucket.
  bool over_replicas = false;
};

// `buckets`: one list per stage of the step. Buckets of a stage are reduced in order, each after the kernel that makes
// its last gradient: the last B or W of the bucket's part, or of the action if its pieces have no parts (recipe.h). A
// task's part is the bucket's index. Throws a usage Error if a rank has no group of the bucket's kind.
void reduce_gradients(Step& step, std::span<const std::vector<GradientBucket>> buckets, const ReduceOptions& options);

// Adds a sum of gradients at the end of all other work of a group's ranks: of a matrix that first and last stage share
// (group `embedding`: the word embedding), or of parameters for which each tensor rank has seen only some of the rows
// (group `tensor`: norms under sequence parallelism). Ranks without such a group are unchanged.
void reduce_at_end(Step& step, GroupKind kind, std::int64_t bytes);

}  // namespace lockstep::schedules
