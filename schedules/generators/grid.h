// Lists from a grid of slots: a schedule that is given as "this work in that slot" becomes what each rank does in
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

struct Placed {
  std::int32_t slot = 0;
  Action action = {};
};

// Sorted by slot; of one slot, as given.
std::vector<Action> in_order_of_slots(std::vector<Placed> placed);

}  // namespace lockstep::schedules
