// Removes tasks from a step, to see the time of the remaining ones alone.
#pragma once

#include <functional>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// A task that waited for a removed one, by an edge or by its lane's order, waits for everything that the removed task
// waited for. Both ends of a message, and all ranks of a collective, have to be removed together; groups stay.
void leave_out(Step& step, const std::function<bool(const Task&)>& is_left_out);

}  // namespace lockstep::schedules
