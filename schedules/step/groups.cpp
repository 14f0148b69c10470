#include "schedules/step/groups.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace lockstep::schedules {

GroupTable::GroupTable(const Step& step) : of_rank_(step.of_rank.size()) {
  for (auto& kinds : of_rank_) kinds.fill(-1);
  for (std::size_t g = 0; g < step.groups.size(); ++g) {
    for (const std::int32_t rank : step.groups[g].ranks) {
      of_rank_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step.groups[g].kind)] =
          static_cast<std::int32_t>(g);
    }
  }
}

std::int32_t GroupTable::find(std::int32_t rank, GroupKind kind) const {
  return of_rank_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(kind)];
}

std::int32_t GroupTable::of(std::int32_t rank, GroupKind kind, const std::string& who) const {
  const std::int32_t group = find(rank, kind);
  if (group >= 0) return group;
  throw core::usage_error(who + " needs a group of kind " + std::string(name_of(kind)) + ", and rank " +
                          std::to_string(rank) + " is in none; allowed: one group of each kind that is used, a rank");
}

std::vector<Group> groups_of_copies(const Step& step) {
  std::vector<Group> groups;
  std::vector<std::int32_t> group_of(step.of_rank.size(), -1);
  for (std::int32_t place = 0; place < step.stages_a_pipe && step.num_stages() > step.stages_a_pipe; ++place) {
    std::vector<std::int32_t> ranks;
    for (std::int32_t stage = place; stage < step.num_stages(); stage += step.stages_a_pipe) {
      ranks.push_back(step.rank_of_stage[static_cast<std::size_t>(stage)]);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::int32_t& group = group_of[static_cast<std::size_t>(ranks.front())];
    if (group < 0) {
      group = static_cast<std::int32_t>(groups.size());
      groups.push_back({.kind = GroupKind::copies, .ranks = ranks});
    }
    for (const std::int32_t rank : ranks) {
      std::int32_t& of_this = group_of[static_cast<std::size_t>(rank)];
      if (of_this < 0) of_this = group;
      if (of_this != group || groups[static_cast<std::size_t>(group)].ranks != ranks) {
        throw core::usage_error(step.name + ": rank " + std::to_string(rank) +
                                " shares stages with several ranks; allowed: the same ranks for all of its stages");
      }
    }
  }
  return groups;
}

}  // namespace lockstep::schedules
