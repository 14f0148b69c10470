// Communication that the computation waits for.
#pragma once

#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::pipeline {

// Of each rank: ms in which its compute lane does nothing while something comes in or a collective runs, from the start
// of the step to the rank's last end. Sends do not count: nobody of this rank waits for them.
std::vector<double> exposed_ms(const schedules::Step& step, const schedules::StepTimeline& timeline);

}  // namespace lockstep::pipeline
