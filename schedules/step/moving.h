// Timelines of steps that ran, with communication told as the simulator tells it: while its bytes move.
#pragma once

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// A rank that runs a step knows when it came to a collective and when it left; until the last member has come, it
// waited for that one, not for bytes. So a collective begins with its last member, and a receive not before its send.
StepTimeline when_bytes_move(const Step& step, StepTimeline timeline);

}  // namespace lockstep::schedules
