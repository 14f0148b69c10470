#include "simulator/layout/groups.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

// Ranks between neighbours of a group, and how many it has; its members differ in one digit of the rank's number.
struct Spacing {
  std::int64_t stride = 1;
  std::int64_t count = 1;
};

Spacing spacing_of(const Layout& l, Group kind) {
  const std::int64_t tensor = l.tp;
  const std::int64_t line = std::int64_t{l.cp} * l.dp;
  const std::int64_t shard = l.shard_ranks == 0 ? line : l.shard_ranks;
  switch (kind) {
    case Group::tensor:
      return {1, tensor};
    case Group::context:
      return {tensor, l.cp};
    case Group::data:
      return {tensor * l.cp, l.dp};
    case Group::gradients:
      return {tensor, line};
    case Group::expert:
      return {tensor, l.ep};
    case Group::expert_data:
      return {tensor * l.ep, line / l.ep};
    case Group::shards:
      return {tensor, shard};
    case Group::replicas:
      return {tensor * shard, line / shard};
    case Group::pipeline:
      return {tensor * line, l.pp};
    case Group::model:
      break;
  }
  LOCKSTEP_CHECK(false, "a group that is not evenly spaced");
  return {};
}

std::vector<std::vector<std::int64_t>> model_groups(const Layout& layout) {
  const std::int64_t line = std::int64_t{layout.cp} * layout.dp;
  std::vector<std::vector<std::int64_t>> groups(static_cast<std::size_t>(line));
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    groups[static_cast<std::size_t>(rank / layout.tp % line)].push_back(rank);
  }
  return groups;
}

}  // namespace

Coordinates coordinates_of(const Layout& layout, std::int64_t rank) {
  const std::int64_t line = std::int64_t{layout.cp} * layout.dp;
  const std::int64_t place = rank / layout.tp % line;
  return {rank % layout.tp, place % layout.cp, place % layout.ep, place / layout.cp, rank / layout.tp / line};
}

RankSet group_of(const Layout& layout, Group kind, std::int64_t rank) {
  const Spacing spacing = spacing_of(layout, kind);
  const std::int64_t digit = rank / spacing.stride % spacing.count;
  return {rank - digit * spacing.stride, spacing.stride, spacing.count};
}

std::vector<std::vector<std::int64_t>> groups_of(const Layout& layout, Group kind) {
  if (kind == Group::model) return model_groups(layout);
  const std::int64_t line = std::int64_t{layout.cp} * layout.dp;
  std::vector<std::vector<std::int64_t>> groups;
  for (std::int64_t place = 0; place < line; ++place) {
    for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
      for (std::int64_t part = 0; part < layout.tp; ++part) {
        const std::int64_t rank = part + layout.tp * (place + line * stage);
        const RankSet set = group_of(layout, kind, rank);
        if (set.first != rank) continue;
        std::vector<std::int64_t>& members = groups.emplace_back();
        for (std::int64_t i = 0; i < set.count; ++i) members.push_back(set.at(i));
      }
    }
  }
  return groups;
}

std::vector<std::int64_t> members_a_level(const Machine& machine, const RankSet& set) {
  std::vector<std::int64_t> most;
  for (const NetworkLevel& level : machine.levels) {
    if (&level == &machine.levels.back()) {
      most.push_back(set.count);
      break;
    }
    // How members fall on switches repeats; the first switch may have fewer.
    const std::int64_t switches = level.ranks / std::gcd<std::int64_t>(level.ranks, set.stride) + 1;
    std::int64_t largest = 0;
    for (std::int64_t i = 0, seen = 0; i < set.count && seen < switches; ++seen) {
      const std::int64_t end = (set.at(i) / level.ranks + 1) * level.ranks;
      const std::int64_t next = std::min(set.count, (end - set.first + set.stride - 1) / set.stride);
      largest = std::max(largest, next - i);
      i = next;
    }
    most.push_back(largest);
  }
  return most;
}

}  // namespace lockstep::simulator
