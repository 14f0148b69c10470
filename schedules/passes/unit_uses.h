// The uses of sharded parameters by a rank's tasks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/passes/sharding.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

struct UnitUse {
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t first_unit = 0;
  std::int32_t num_units = 1;  // several if the action has no parts
  bool backward = false;
  std::uint32_t first = 0;  // first and last task of the rank that use the units
  std::uint32_t last = 0;
};

// Uses in the order of the compute lane; they do not overlap.
std::vector<UnitUse> uses_of(const RankStep& rank, std::span<const std::vector<Unit>> units,
                             const ShardingOptions& options);

}  // namespace lockstep::schedules
