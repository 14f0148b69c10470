// The groups of ranks. Ranks are numbered in the layout's order of axes, by default as Megatron does: tensor first,
// then context, then data, then pipeline. Experts are spread over the context and data ranks, taken as one line, whose
// inner axis is the one that comes first in the order.
//
//   rank = tp + t (cp + c (dp + d pp))     position in the line: cp + c dp = ep + e edp     (order tp-cp-ep-dp-pp)
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "workload/layout.h"

namespace lockstep::workload {

struct Coordinates {
  std::int32_t tp = 0;
  std::int32_t dp = 0;
  std::int32_t pp = 0;
  std::int32_t cp = 0;
  std::int32_t ep = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};
// Distance between ranks whose coordinates differ by 1 on this axis and on no other.
std::int64_t stride_of(const Layout& layout, Axis axis);
Coordinates coordinates_of(const Layout& layout, std::int64_t rank);
std::int32_t rank_at(const Layout& layout, const Coordinates& at);  // `ep` follows from the others

// ---- ranks that have the same parameters

// Data-parallel and context-parallel ranks; with two pipes, those of position pp - 1 - p together with those of
// position p. These give their number, a rank's index, and the rank of an index: neighbours come first, then the
// opposite position.
std::int32_t data_ranks_of(const Layout& layout);
std::int32_t data_index_of(const Layout& layout, const Coordinates& at);
Coordinates data_rank_at(const Layout& layout, const Coordinates& at, std::int32_t index);

// The effective ZeRO stage: 0 if a set of shards is on one rank.
std::int32_t zero_of(const Layout& layout);
// True if each microbatch's gradients change the weights at once (schedules::add_updates), as in PipeDream. Sharded
// gradients do so at the end of the step.
bool updates_every_microbatch(const Layout& layout);
// Number of neighbouring data ranks that share a set of shards (or, without shards, reduce whole gradients) among
// themselves, and number of replicas of the set. The rank of index i has shard i % shards_of() of replica i /
// shards_of().
std::int32_t shards_of(const Layout& layout);
std::int32_t replicas_of(const Layout& layout);
// The number of ranks that share a parameter's shards, and a rank's index among them.
struct ShardPlace {
  std::int32_t shards = 1;
  std::int32_t shard = 0;
};
ShardPlace shard_place(const Layout& layout, const Coordinates& at, bool of_expert);
// The neighbours that share a secondary copy of the weights (Layout::secondary_ranks), and a rank's index among them.
ShardPlace secondary_place(const Layout& layout, const Coordinates& at);
// Number of ranks that share what expert-parallel ranks have in common.
std::int32_t expert_shards_of(const Layout& layout);

// ---- groups

// Evenly spaced ranks: first, first + stride, ...
struct RankSet {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 1;
  std::int64_t at(std::int64_t i) const { return first + stride * i; }
};

// The groups of a step that has one rank for each position in the pipeline: each names the positions and the actual
// number of its members. Groups of one member are left out, except for data and world.
std::vector<schedules::Group> groups_of_places(const Model& model, const Layout& layout,
                                               const schedules::Schedule& schedule);
// The members of the actual group that contains `rank`.
std::vector<RankSet> members_of(const Layout& layout, const schedules::Group& folded, std::int64_t rank);

}  // namespace lockstep::workload
