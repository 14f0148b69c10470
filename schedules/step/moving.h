// Converts timelines of steps that ran to the simulator's convention: communication lasts only while its bytes move.
#pragma once

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// A rank that runs a step records when it entered and left a collective; until the last member entered, it waited for
// that member, not for bytes. So a collective begins with its last member, and a receive not before its send.
StepTimeline when_bytes_move(const Step& step, StepTimeline timeline);

}  // namespace lockstep::schedules
