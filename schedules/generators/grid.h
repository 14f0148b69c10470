// Turns a grid of time slots, in which a schedule says "this action in that slot", into an ordered list of actions.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

struct Placed {
  std::int32_t slot = 0;
  Action action = {};
};

// Actions sorted by slot; those of one slot keep their order.
std::vector<Action> in_order_of_slots(std::vector<Placed> placed);

}  // namespace lockstep::schedules
