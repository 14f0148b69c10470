// Adds reductions of gradients over data-parallel ranks to a step: REDUCE_GRAD tasks in lane reduce.
#pragma once

#include <span>
#include <vector>

#include "schedules/passes/buckets.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

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
