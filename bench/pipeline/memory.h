// Held activations over time.
#pragma once

#include "core/record.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::pipeline {

// Activations of each rank, in microbatches of its share, including those held for another rank: "until_b", from the
// start of F to the end of B or I, plus "until_w", the share that I leaves for W.
core::MemoryRecord activations_over_time(const schedules::Schedule& schedule, const schedules::Step& step,
                                         const schedules::StepTimeline& timeline, double w_share);

}  // namespace lockstep::pipeline
