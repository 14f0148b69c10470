// A step run without times, to see whether it ends.
#pragma once

#include <vector>

#include "schedules/step/check_step.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// Where each lane stands that does not come to its end. The step's edges, messages and groups have to be right.
std::vector<StepProblem> stuck_tasks(const Step& step);

}  // namespace lockstep::schedules
