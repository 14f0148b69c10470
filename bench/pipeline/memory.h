// Activations that are held, over time.
#pragma once

#include "core/record.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::pipeline {

// Each rank's activations, in microbatches of its share, those that it holds for another rank among them: "until_b",
// from the start of F to the end of B or I; "until_w", the share that I leaves for W. Their sum is held.
core::MemoryRecord activations_over_time(const schedules::Schedule& schedule, const schedules::Step& step,
                                         const schedules::StepTimeline& timeline, double w_share);

}  // namespace lockstep::pipeline
