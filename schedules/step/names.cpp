#include "schedules/step/step.h"

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

}  // namespace lockstep::schedules
