// Which ranks work together. Ranks are numbered in the layout's order of axes: by default as Megatron does, tensor
// first, then context, then data, then pipeline. Experts are spread over the context and data ranks, taken as one line,
// in which the one of both that comes first in the order counts first.
//
//   rank = tp + t (cp + c (dp + d pp))     place in the line: cp + c dp = ep + e edp     (order tp-cp-ep-dp-pp)
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
// Ranks whose coordinates differ by 1 on this axis, and on no other, are so far apart.
std::int64_t stride_of(const Layout& layout, Axis axis);
Coordinates coordinates_of(const Layout& layout, std::int64_t rank);
std::int32_t rank_at(const Layout& layout, const Coordinates& at);  // `ep` follows from the others

// ---- ranks that have the same parameters

// Data-parallel and context-parallel ranks, and with two pipes those of place pp - 1 - p beside those of place p. Which
// of them a rank is, and where the one with an index is: neighbours come first, then the opposite place.
std::int32_t data_ranks_of(const Layout& layout);
std::int32_t data_index_of(const Layout& layout, const Coordinates& at);
Coordinates data_rank_at(const Layout& layout, const Coordinates& at, std::int32_t index);

// The ZeRO stage that makes a difference: none where a set of shards is on one rank.
std::int32_t zero_of(const Layout& layout);
// Whether each microbatch's gradients change the weights at once (schedules::add_updates), as in PipeDream. Of shards
// they do so at the end of the step.
bool updates_every_microbatch(const Layout& layout);
// Neighbouring data ranks that share a set of shards (or, without any, reduce whole gradients) among themselves, and
// how many replicas of the set there are. The one with index i has shard i % shards_of() of replica i / shards_of().
std::int32_t shards_of(const Layout& layout);
std::int32_t replicas_of(const Layout& layout);
// The ranks that share a parameter's shards out, and which of them a rank is.
struct ShardPlace {
  std::int32_t shards = 1;
  std::int32_t shard = 0;
};
ShardPlace shard_place(const Layout& layout, const Coordinates& at, bool of_expert);
// The neighbours that share a secondary copy of the weights out (Layout::secondary_ranks), and which of them a rank is.
ShardPlace secondary_place(const Layout& layout, const Coordinates& at);
// Ranks that share out what expert-parallel ranks have alike.
std::int32_t expert_shards_of(const Layout& layout);

// ---- groups

// Evenly spaced ranks: first, first + stride, ...
struct RankSet {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 1;
  std::int64_t at(std::int64_t i) const { return first + stride * i; }
};

// The groups of a step that has one rank for each place in the pipeline: each names the places, and how many members it
// has in truth. Groups of one member are left out, but for data and world.
std::vector<schedules::Group> groups_of_places(const Model& model, const Layout& layout,
                                               const schedules::Schedule& schedule);
// The members of such a group that `rank`, which is one of them, is in.
std::vector<RankSet> members_of(const Layout& layout, const schedules::Group& folded, std::int64_t rank);

}  // namespace lockstep::workload
