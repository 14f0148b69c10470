#include "schedules/passes/unit_uses.h"

#include <algorithm>

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kNoUnit = -1;

bool needs_parameters(const Task& task) {
  if (task.lane != Lane::compute) return false;
  return task.op == Op::forward || task.op == Op::backward || task.op == Op::input_gradient || task.op == Op::recompute;
}

// Of each part of a stage: its unit.
std::vector<std::int32_t> unit_of_parts(const std::vector<Unit>& units) {
  std::vector<std::int32_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto begin = static_cast<std::size_t>(units[u].first_part);
    const auto end = begin + static_cast<std::size_t>(units[u].num_parts);
    if (end > unit_of.size()) unit_of.resize(end, kNoUnit);
    for (std::size_t part = begin; part < end; ++part) unit_of[part] = static_cast<std::int32_t>(u);
  }
  return unit_of;
}

bool continues(const UnitUse& use, const UnitUse& next) {
  return use.stage == next.stage && use.microbatch == next.microbatch && use.first_unit == next.first_unit &&
         use.num_units == next.num_units && (!use.backward || next.backward);
}

}  // namespace

std::vector<UnitUse> uses_of(const RankStep& rank, std::span<const std::vector<Unit>> units) {
  std::vector<std::vector<std::int32_t>> unit_of(units.size());
  for (std::size_t s = 0; s < units.size(); ++s) unit_of[s] = unit_of_parts(units[s]);
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
      const auto part = static_cast<std::size_t>(task.part);
      use.first_unit = part < unit_of[stage].size() ? unit_of[stage][part] : kNoUnit;
    }
    const bool any = use.num_units > 0 && use.first_unit != kNoUnit;
    if (any && !uses.empty() && continues(uses.back(), use) &&
        (uses.back().backward == use.backward || rank.tasks[uses.back().first].op == Op::recompute)) {
      uses.back().last = i;
      uses.back().backward = use.backward;
    } else if (any) {
      uses.push_back(use);
    }
  }
  return uses;
}

}  // namespace lockstep::schedules
