#include "schedules/step/step.h"

#include <string>

#include "core/error.h"

namespace lockstep::schedules {

std::string_view name_of(GroupKind kind) {
  constexpr std::array<std::string_view, kNumGroupKinds> kNames{
      "tensor",      "context",      "expert",        "data",       "replicas",      "embedding",    "world",
      "expert_data", "expert_group", "expert_groups", "tensor_row", "tensor_column", "tensor_depth", "secondary",
      "near",        "far"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Lane lane) {
  constexpr std::array<std::string_view, kNumLanes> kNames{"compute", "send",     "receive", "tensor", "gather",
                                                           "reduce",  "replicas", "copy",    "load",   "host"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string_view name_of(Comm comm) {
  constexpr std::array<std::string_view, 8> kNames{"none",       "all_reduce", "all_gather", "reduce_scatter",
                                                   "all_to_all", "shift",      "broadcast",  "reduce"};
  return kNames[static_cast<std::size_t>(comm)];
}

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

}  // namespace lockstep::schedules
