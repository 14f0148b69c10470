#include "schedules/passes/unit_uses.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::schedules {
namespace {

bool needs_parameters(const Task& task) {
  if (task.lane != Lane::compute) return false;
  return task.op == Op::forward || task.op == Op::backward || task.op == Op::input_gradient || task.op == Op::recompute;
}

// Consecutive units that a part needs: several if they begin with the same part.
struct UnitRange {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

// The units of each part of a stage, and of tiles.
struct StageUnits {
  std::vector<UnitRange> of_part = {};
  std::map<std::pair<std::int32_t, std::int32_t>, UnitRange> of_tile = {};  // by (part, tile)

  UnitRange of(std::int32_t part, std::int32_t tile) const {
    const auto found = of_tile.find({part, tile});
    if (found != of_tile.end()) return found->second;
    const auto p = static_cast<std::size_t>(part);
    return p < of_part.size() ? of_part[p] : UnitRange{};
  }
};

StageUnits units_of_parts(const std::vector<Unit>& units) {
  StageUnits made;
  std::vector<UnitRange>& of_part = made.of_part;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].tile >= 0) {
      made.of_tile[{units[u].first_part, units[u].tile}] = {static_cast<std::int32_t>(u), 1};
      continue;
    }
    const auto begin = static_cast<std::size_t>(units[u].first_part);
    const auto end = begin + static_cast<std::size_t>(units[u].num_parts);
    if (end > of_part.size()) of_part.resize(end);
    for (std::size_t part = begin; part < end; ++part) {
      if (of_part[part].count++ == 0) of_part[part].first = static_cast<std::int32_t>(u);
    }
  }
  return made;
}

bool continues(const UnitUse& use, const UnitUse& next) {
  return use.stage == next.stage && use.microbatch == next.microbatch && use.first_unit == next.first_unit &&
         use.num_units == next.num_units && (!use.backward || next.backward);
}

}  // namespace

std::vector<UnitUse> uses_of(const RankStep& rank, std::span<const std::vector<Unit>> units,
                             const ShardingOptions& options) {
  std::vector<StageUnits> of_parts(units.size());
  for (std::size_t s = 0; s < units.size(); ++s) of_parts[s] = units_of_parts(units[s]);
  std::vector<UnitUse> uses;
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (!needs_parameters(task)) continue;
    const auto stage = static_cast<std::size_t>(task.stage);
    UnitUse use{.stage = task.stage, .microbatch = task.microbatch, .first = i, .last = i};
    use.backward = task.op == Op::backward || task.op == Op::input_gradient;
    if (task.part < 0) {
      use.num_units = static_cast<std::int32_t>(units[stage].size());
    } else {
      const UnitRange range = of_parts[stage].of(task.part, options.tile_of(task));
      use.first_unit = range.first;
      use.num_units = range.count;
    }
    const bool any = use.num_units > 0;
    if (any && !uses.empty() && continues(uses.back(), use) &&
        (uses.back().backward == use.backward ||
         (!options.gather_again_after_recompute && rank.tasks[uses.back().first].op == Op::recompute))) {
      uses.back().last = i;
      uses.back().backward = use.backward;
    } else if (any) {
      uses.push_back(use);
    }
  }
  return uses;
}

}  // namespace lockstep::schedules
