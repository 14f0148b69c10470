// Puts reductions of gradients over data-parallel ranks into a step: REDUCE_GRAD tasks in lane reduce.
#pragma once

#include <span>
#include <vector>

#include "schedules/passes/buckets.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

struct ReduceOptions {
  Comm comm = Comm::all_reduce;   // or reduce_scatter: each rank keeps its shard
  bool every_microbatch = false;  // else gradients add up, and the last microbatch of a stage alone has them reduced
  // A bucket leaves as soon as its last gradient is there. Else buckets leave when the rank has made all gradients that
  // are to be reduced, and with `every_microbatch` the rank waits for those of one microbatch before the next.
  bool overlapped = true;
  // The reduced gradients are then summed over groups of kind `replicas`, too (HSDP), in a lane of its own, beside
  // the reduction of the next bucket.
  bool over_replicas = false;
};

// `buckets`: for each stage of the step. Buckets of a stage leave in their order, each after the kernel that gives its
// last gradient: the last B or W of the bucket's part, or of the action if its pieces have no parts (recipe.h). A
// task's part is the bucket's index. Throws a usage Error if a rank has no group of the kind that is named.
void reduce_gradients(Step& step, std::span<const std::vector<GradientBucket>> buckets, const ReduceOptions& options);

// Gradients that a group sums when its ranks have done all else: the gradient of a matrix that first and last stage
// share (group `embedding`: the word embedding), or of parameters of which each tensor rank has seen a part of the rows
// only (group `tensor`: norms under sequence parallelism). Ranks of no such group do nothing.
void reduce_at_end(Step& step, GroupKind kind, std::int64_t bytes);

}  // namespace lockstep::schedules
