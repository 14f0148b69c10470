// Turns a grid of time slots, in which a schedule says "this action in that slot", into an ordered list of actions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

struct Placed {
  std::int32_t slot = 0;
  Action action = {};
};

// Actions sorted by slot; those of one slot keep their order.
inline std::vector<Action> in_order_of_slots(std::vector<Placed> placed) {
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.slot < b.slot; });
  std::vector<Action> actions;
  for (const Placed& one : placed) actions.push_back(one.action);
  return actions;
}

}  // namespace lockstep::schedules
