#include "workload/layout.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "workload/operations.h"

namespace lockstep::workload {
namespace {

using schedules::GroupKind;

// Number of context- and data-parallel ranks of one pipeline position and tensor-parallel rank, taken as one line.
std::int64_t line_of(const Layout& layout) {
  return std::int64_t{layout.cp} * layout.dp;
}

std::int32_t size_of(const Layout& layout, Axis axis) {
  switch (axis) {
    case Axis::tp:
      return layout.tp;
    case Axis::cp:
      return layout.cp;
    case Axis::dp:
      return layout.dp;
    case Axis::pp:
      break;
  }
  return layout.pp;
}

std::int64_t digit_of(const Layout& layout, std::int64_t rank, Axis axis) {
  return rank / stride_of(layout, axis) % size_of(layout, axis);
}

// True if context ranks come before data ranks in the line of both.
bool context_first(const Layout& layout) {
  const auto at = [&](Axis axis) { return std::find(layout.order.begin(), layout.order.end(), axis); };
  return at(Axis::cp) < at(Axis::dp);
}

std::int64_t place_in_line(const Layout& layout, std::int64_t cp, std::int64_t dp) {
  return context_first(layout) ? cp + layout.cp * dp : dp + layout.dp * cp;
}

// The ranks that differ from this one on one axis.
RankSet ranks_along(const Layout& layout, std::int64_t rank, Axis axis) {
  const std::int64_t stride = stride_of(layout, axis);
  return {rank - digit_of(layout, rank, axis) * stride, stride, size_of(layout, axis)};
}

// The ranks that have the first and the last stage, which share a word embedding. A rank that has both is alone: in
// schedules whose pipe returns to its start, and where the opposite pipe begins (whose copies are among the data
// ranks).
std::vector<schedules::Group> embedding_groups(const Model& model, const schedules::Schedule& schedule) {
  if (!model.tied_embeddings || schedule.stages_per_pipe == 1) return {};
  const std::int32_t first = schedule.rank_of_stage.front();
  const std::int32_t last = schedule.rank_of_stage[static_cast<std::size_t>(schedule.stages_per_pipe) - 1];
  if (first == last) return {{GroupKind::embedding, {first}, 1}};
  if (schedule.num_pipes() > 1) return {{GroupKind::embedding, {first}, 1}, {GroupKind::embedding, {last}, 1}};
  return {{GroupKind::embedding, {std::min(first, last), std::max(first, last)}, 2}};
}

// The tensor-parallel ranks that differ from this one in one coordinate of the grid.
RankSet ranks_of_grid(const Layout& layout, std::int64_t rank, GroupKind axis) {
  const std::int32_t at =
      place_of(layout.grid, static_cast<std::int32_t>(digit_of(layout, rank, Axis::tp))).along(axis);
  const std::int64_t stride = stride_of(layout, Axis::tp) * stride_along(layout.grid, axis);
  return {rank - at * stride, stride, members_along(layout.grid, axis)};
}

// Ranks at these positions of the pipeline whose other coordinates equal those of `rank`.
RankSet same_place(const Layout& layout, const std::vector<std::int32_t>& places, std::int64_t rank) {
  const std::int64_t each = stride_of(layout, Axis::pp);
  const std::int64_t first = rank + (places.front() - digit_of(layout, rank, Axis::pp)) * each;
  const std::int64_t stride = places.size() > 1 ? (places[1] - places[0]) * each : 1;
  return {first, stride, static_cast<std::int64_t>(places.size())};
}

// The ranks with these data indices, as runs: first at the first pipe's position, then at the second's.
std::vector<RankSet> data_members(const Layout& layout, const Coordinates& at, const RankSet& indices) {
  // If the line's axes are adjacent (or one has size 1), indices are evenly spaced ranks.
  const std::int64_t cp_stride = stride_of(layout, Axis::cp);
  const std::int64_t dp_stride = stride_of(layout, Axis::dp);
  const bool cp_first = context_first(layout);
  const std::int64_t inner = cp_first ? layout.cp : layout.dp;
  const std::int64_t inner_stride = cp_first ? cp_stride : dp_stride;
  const std::int64_t outer_stride = cp_first ? dp_stride : cp_stride;
  const bool even = outer_stride == inner * inner_stride || inner == 1 || inner == line_of(layout);
  const std::int64_t stride = inner == 1 ? outer_stride : inner_stride;
  const std::int64_t run = even ? line_of(layout) : inner;
  std::vector<RankSet> runs;
  for (std::int64_t i = 0; i < indices.count;) {
    const std::int64_t end = (indices.at(i) / run + 1) * run;
    const std::int64_t next = std::min(indices.count, (end - indices.first + indices.stride - 1) / indices.stride);
    const Coordinates first = data_rank_at(layout, at, static_cast<std::int32_t>(indices.at(i)));
    runs.push_back({rank_at(layout, first), stride * indices.stride, next - i});
    i = next;
  }
  return runs;
}

}  // namespace

std::int64_t stride_of(const Layout& layout, Axis axis) {
  std::int64_t stride = 1;
  for (std::size_t i = 0; layout.order.at(i) != axis; ++i) stride *= size_of(layout, layout.order.at(i));
  return stride;
}

Coordinates coordinates_of(const Layout& layout, std::int64_t rank) {
  const auto digit = [&](Axis axis) { return static_cast<std::int32_t>(digit_of(layout, rank, axis)); };
  Coordinates at{.tp = digit(Axis::tp), .dp = digit(Axis::dp), .pp = digit(Axis::pp), .cp = digit(Axis::cp)};
  at.ep = static_cast<std::int32_t>(place_in_line(layout, at.cp, at.dp) % layout.ep);
  return at;
}

std::int32_t rank_at(const Layout& layout, const Coordinates& at) {
  return static_cast<std::int32_t>(at.tp * stride_of(layout, Axis::tp) + at.cp * stride_of(layout, Axis::cp) +
                                   at.dp * stride_of(layout, Axis::dp) + at.pp * stride_of(layout, Axis::pp));
}

bool counts_losses(const Layout& layout, const Coordinates& at) {
  return layout.has_grid() ? place_of(layout.grid, at.tp).along(GroupKind::tensor_row) == 0 : at.tp == 0;
}

std::int32_t data_ranks_of(const Layout& layout) {
  return static_cast<std::int32_t>(line_of(layout)) * pipes_of(layout);
}

std::int32_t data_index_of(const Layout& layout, const Coordinates& at) {
  const bool second_half = pipes_of(layout) > 1 && at.pp >= layout.pp / 2;
  return static_cast<std::int32_t>((second_half ? line_of(layout) : 0) + place_in_line(layout, at.cp, at.dp));
}

Coordinates data_rank_at(const Layout& layout, const Coordinates& at, std::int32_t index) {
  const auto line = static_cast<std::int32_t>(line_of(layout));
  const bool stays = index / line == data_index_of(layout, at) / line;
  const std::int32_t place = index % line;
  const bool cp_first = context_first(layout);
  return {.tp = at.tp,
          .dp = cp_first ? place / layout.cp : place % layout.dp,
          .pp = stays ? at.pp : layout.pp - 1 - at.pp,
          .cp = cp_first ? place % layout.cp : place / layout.dp,
          .ep = place % layout.ep};
}

std::int32_t zero_of(const Layout& layout) {
  const std::int32_t share = layout.shard_ranks > 0 ? layout.shard_ranks : data_ranks_of(layout);
  return share > 1 ? layout.zero : 0;
}

bool updates_every_microbatch(const Layout& layout) {
  return versions_of(layout) == schedules::Versions::in_flight && zero_of(layout) == 0;
}

std::int32_t shards_of(const Layout& layout) {
  return zero_of(layout) > 0 && layout.shard_ranks > 0 ? layout.shard_ranks : data_ranks_of(layout);
}

std::int32_t replicas_of(const Layout& layout) {
  return data_ranks_of(layout) / shards_of(layout);
}

std::int32_t expert_shards_of(const Layout& layout) {
  return data_ranks_of(layout) / layout.ep;
}

ShardIndex shard_index(const Layout& layout, const Coordinates& at, bool of_expert) {
  const std::int64_t index = data_index_of(layout, at);
  if (of_expert) return {expert_shards_of(layout), static_cast<std::int32_t>(index / layout.ep)};
  const std::int32_t shards = shards_of(layout);
  return {shards, static_cast<std::int32_t>(index % shards)};
}

ShardIndex secondary_index(const Layout& layout, const Coordinates& at) {
  return {layout.secondary_ranks, data_index_of(layout, at) % std::max(1, layout.secondary_ranks)};
}

std::vector<schedules::Group> groups_of_places(const Model& model, const Layout& layout,
                                               const schedules::Schedule& schedule) {
  std::vector<schedules::Group> groups;
  for (const auto& [kind, members] :
       {std::pair{GroupKind::tensor, layout.tp}, {GroupKind::context, layout.cp}, {GroupKind::expert, layout.ep}}) {
    for (std::int32_t p = 0; members > 1 && p < layout.pp; ++p) groups.push_back({kind, {p}, members});
  }
  for (const GroupKind kind : kGridGroups) {
    const std::int32_t members = members_along(layout.grid, kind);
    for (std::int32_t p = 0; members > 1 && p < layout.pp; ++p) groups.push_back({kind, {p}, members});
  }
  if (dispatches_in_two_hops(model, layout)) {
    const std::int64_t ranks = layout.ep / model.expert_groups;
    for (std::int32_t p = 0; p < layout.pp; ++p) {
      if (ranks > 1) groups.push_back({GroupKind::expert_group, {p}, ranks});
      groups.push_back({GroupKind::expert_groups, {p}, model.expert_groups});
    }
  }
  // The ends of opposite pipes have the same stages, and so the same parameters.
  const std::int32_t pipes = pipes_of(layout);
  for (std::int32_t p = 0; p < layout.pp / pipes; ++p) {
    std::vector<std::int32_t> places{p};
    if (pipes > 1) places.push_back(layout.pp - 1 - p);
    groups.push_back({GroupKind::data, places, shards_of(layout)});
    if (replicas_of(layout) > 1) groups.push_back({GroupKind::replicas, places, replicas_of(layout)});
    if (layout.secondary_ranks > 0) groups.push_back({GroupKind::secondary, places, layout.secondary_ranks});
    if (layout.near_ranks > 0) {
      groups.push_back({GroupKind::near, places, layout.near_ranks});
      groups.push_back({GroupKind::far, places, shards_of(layout) / layout.near_ranks});
    }
    if (model.experts > 0) groups.push_back({GroupKind::expert_data, places, expert_shards_of(layout)});
  }
  for (schedules::Group& group : embedding_groups(model, schedule)) groups.push_back(std::move(group));
  schedules::Group world{GroupKind::world, {}, layout.ranks()};
  for (std::int32_t p = 0; p < layout.pp; ++p) world.ranks.push_back(p);
  groups.push_back(std::move(world));
  return groups;
}

std::vector<RankSet> members_of(const Layout& layout, const schedules::Group& folded, std::int64_t rank) {
  const Coordinates at = coordinates_of(layout, rank);
  const std::int64_t index = data_index_of(layout, at);
  const std::int64_t shards = shards_of(layout);
  switch (folded.kind) {
    case GroupKind::tensor:
      return {ranks_along(layout, rank, Axis::tp)};
    case GroupKind::tensor_row:
    case GroupKind::tensor_column:
    case GroupKind::tensor_depth:
      return {ranks_of_grid(layout, rank, folded.kind)};
    case GroupKind::context:
      return {ranks_along(layout, rank, Axis::cp)};
    case GroupKind::expert:
      return data_members(layout, at, {index / layout.ep * layout.ep, 1, layout.ep});
    case GroupKind::expert_group: {
      const std::int64_t size = folded.size();
      return data_members(layout, at, {index / size * size, 1, size});
    }
    case GroupKind::expert_groups: {
      const std::int64_t size = layout.ep / folded.size();  // size of one group
      return data_members(layout, at, {index / layout.ep * layout.ep + at.ep % size, size, folded.size()});
    }
    case GroupKind::data:
      return data_members(layout, at, {index / shards * shards, 1, shards});
    case GroupKind::replicas:
      return data_members(layout, at, {index % shards, shards, replicas_of(layout)});
    case GroupKind::secondary:
    case GroupKind::near:
      return data_members(layout, at, {index / folded.size() * folded.size(), 1, folded.size()});
    case GroupKind::far: {
      const std::int64_t first = index / shards * shards + index % layout.near_ranks;
      return data_members(layout, at, {first, layout.near_ranks, folded.size()});
    }
    case GroupKind::expert_data:
      return data_members(layout, at, {at.ep, layout.ep, expert_shards_of(layout)});
    case GroupKind::embedding:
      return {same_place(layout, folded.ranks, rank)};
    default:
      LOCKSTEP_CHECK(folded.kind == GroupKind::world, "a group that layouts have");
      return {{0, 1, layout.ranks()}};
  }
}

}  // namespace lockstep::workload
