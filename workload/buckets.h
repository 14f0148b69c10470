// Buckets of gradients, and the flat buffers that hold them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "workload/groups.h"
#include "workload/layout.h"
#include "workload/parameters.h"

namespace lockstep::workload {

// Parameters one after the other in a flat buffer that ranks can share evenly.

// Alignment in elements at which each parameter begins: 128 bytes in f32, the alignment that kernels prefer. Shards end
// at one, too.
inline constexpr std::int64_t kFlatGrain = 32;

// Elements [begin, end) of a flat buffer.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  bool empty() const { return end <= begin; }
};
inline FlatRange common_of(FlatRange a, FlatRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

struct FlatBucket {
  std::vector<FlatRange> places;  // [member]
  std::int64_t elems = 0;         // padding included: a multiple of shards * kFlatGrain

  // Equal shards, in the order of ranks.
  FlatRange shard(std::int32_t shards, std::int32_t index) const {
    return {elems / shards * index, elems / shards * (index + 1)};
  }
  // Ranges of members for which `chosen(member)` is true, within a range; neighbours, and the zeros between them, are
  // merged.
  template <class Chosen>
  std::vector<FlatRange> ranges_in(FlatRange wanted, const Chosen& chosen) const {
    std::vector<FlatRange> ranges;
    bool goes_on = false;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const FlatRange range = common_of(places[i], wanted);
      if (range.empty()) continue;
      const bool is_chosen = chosen(i);
      if (is_chosen && goes_on) ranges.back().end = range.end;
      if (is_chosen && !goes_on) ranges.push_back(range);
      goes_on = is_chosen;
    }
    return ranges;
  }
};

// `member_elems`: elements of the bucket's parameters, in memory order.
FlatBucket lay_out(std::span<const std::int64_t> member_elems, std::int32_t shards);

// Assigns a stage's parameters to buckets, which are stored, reduced and sharded together.

struct StagePlan {
  StageSlice place;
  bool tied = true;  // the head uses the word embedding's matrix
  std::vector<Parameter> parameters;
  // In the order in which their gradients become complete. Parameters of one bucket are reduced and sharded at once.
  std::vector<std::vector<std::size_t>> buckets;
};
StagePlan plan_of(const Model& model, const Layout& layout, const StageSlice& slice);

// Elements of a bucket that each rank of this layout updates, without padding: those of a shard if ZeRO shards them.
std::int64_t updated_elems(const StagePlan& plan, std::size_t bucket, const Layout& layout);
// True if any of its gradients is summed once more at the end of the step (is_summed_over).
bool is_summed_at_end(const StagePlan& plan, std::size_t bucket, const Layout& layout);

// Buckets in the form that schedule passes take; bucket k is plan.buckets[k]. Bytes are those of the parameters on one
// tensor-parallel rank, without padding.
std::vector<schedules::GradientBucket> gradient_buckets_of(const StagePlan& plan, const Layout& layout);
// Unit u is bucket number_of_buckets - 1 - u: gathers are in forward order, reductions in reverse.
std::vector<schedules::Unit> units_of(const StagePlan& plan, const Layout& layout);

// For each bucket, whether its weights have a secondary copy (Layout::secondary_ranks): if backwards gather them, which
// excludes weights that are held until the end of a step; and not experts, which are sharded over other ranks.
std::vector<bool> has_secondary(const StagePlan& plan, const Layout& layout);

// Payload of the sum over tensor-parallel ranks of gradients for which each has seen only some rows
// (is_partial_over_tensor), the maximum over ranks; 0 if there is none.
std::int64_t partial_norm_bytes(const std::vector<StagePlan>& plans, const Layout& layout);
// Payload of the sum of the word embedding's gradient over the stages that have it: of a shard if it is sharded.
std::int64_t tied_gradient_bytes(const StagePlan& plan, const Layout& layout);

// True if a rank's part of a parameter's gradient is summed over a group once more at the end of the step: the word
// embedding's over the stages that have it, or gradients for which each tensor-parallel rank has seen only some rows.
bool is_summed_over(schedules::GroupKind kind, const StagePlan& plan, std::size_t parameter, const Layout& layout);
// True if a rank counts a parameter in the norm of gradients; over all ranks each parameter counts once. Of ranks with
// the same shard or the same whole parameter, the first counts it; of tensor-parallel ranks with the same parameter,
// the first; of two stages with the word embedding, the first.
bool counts_in_norm(const StagePlan& plan, std::size_t parameter, const Layout& layout, const Coordinates& at);

}  // namespace lockstep::workload
