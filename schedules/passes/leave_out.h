// A step with some of its tasks left out: what the others take on their own.
#pragma once

#include <functional>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// A task after one that is left out, by an edge or by its lane's order, comes after all that this one came after. Both
// ends of a message, and all ranks of a collective, are left out or kept together; members of groups stay.
void leave_out(Step& step, const std::function<bool(const Task&)>& is_left_out);

}  // namespace lockstep::schedules
