#include "schedules/generators/grid.h"

#include <algorithm>

namespace lockstep::schedules {

std::vector<Action> in_order_of_slots(std::vector<Placed> placed) {
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.slot < b.slot; });
  std::vector<Action> actions;
  for (const Placed& one : placed) actions.push_back(one.action);
  return actions;
}

}  // namespace lockstep::schedules
