// Which parameters of a stage lie, are reduced and are sharded together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/passes/buckets.h"
#include "schedules/passes/sharding.h"
#include "workload/groups.h"
#include "workload/layout.h"
#include "workload/parameter.h"

namespace lockstep::workload {

struct StagePlan {
  StageSlice place;
  bool tied = true;  // the head is the word embedding
  std::vector<Parameter> parameters;
  // In the order in which their gradients are complete. Parameters of one bucket are reduced, and sharded, at once.
  std::vector<std::vector<std::size_t>> buckets;
};
StagePlan plan_of(const Model& model, const Layout& layout, const StageSlice& slice);

// Elements of a bucket that this layout's ranks update each, without padding: a shard's, where ZeRO shards.
std::int64_t updated_elems(const StagePlan& plan, std::size_t bucket, const Layout& layout);
// Whether any of its gradients is summed once more at the end of the step (is_summed_over).
bool is_summed_at_end(const StagePlan& plan, std::size_t bucket, const Layout& layout);

// As passes want them; bucket k is plan.buckets[k]. Bytes are those of the parameters on one tensor rank, without
// padding.
std::vector<schedules::GradientBucket> gradient_buckets_of(const StagePlan& plan, const Layout& layout);
// Unit u is bucket number_of_buckets - 1 - u: gathers go in the forward's order, reductions the other way round.
std::vector<schedules::Unit> units_of(const StagePlan& plan, const Layout& layout);

// Of each bucket, whether its weights have a secondary copy (Layout::secondary_ranks): where backwards gather them, so
// not those that are held to the end of a step; and not experts, which other ranks share out.
std::vector<bool> has_secondary(const StagePlan& plan, const Layout& layout);

// Payload of the sum over tensor ranks of what each has seen a part of the rows for (is_partial_over_tensor), at most
// of any rank; 0 if there is none.
std::int64_t partial_norm_bytes(const std::vector<StagePlan>& plans, const Layout& layout);
// Payload of the sum of the word embedding's gradient over the stages that have it: of a shard, where it is sharded.
std::int64_t tied_gradient_bytes(const StagePlan& plan, const Layout& layout);

// Whether a rank's part of a parameter's gradient is summed over a group once more when the step ends: the word
// embedding's over the stages that have it, or what tensor ranks have seen a share of the rows for.
bool is_summed_over(schedules::GroupKind kind, const StagePlan& plan, std::size_t parameter, const Layout& layout);
// Whether a rank counts a parameter in the norm of gradients: each once over all ranks. Of replicas, of shards or of
// all, the first does; of what tensor ranks have alike, the first rank; of a word embedding on two stages, the first.
bool counts_in_norm(const StagePlan& plan, std::size_t parameter, const Layout& layout, const Coordinates& at);

}  // namespace lockstep::workload
