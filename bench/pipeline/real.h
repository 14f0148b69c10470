// A schedule with real kernels: the trainer runs it on the stages of a GPT.
#pragma once

#include "bench/pipeline/flags.h"
#include "bench/pipeline/result.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"

namespace lockstep::pipeline {

// Times of a microbatch on a rank's share, in ms: medians of one rank that has the machine to itself.
schedules::Times isolated_times_ms(const PipelineFlags& flags);

// The part of a stage's activations that its weight gradients still need after the input gradients.
double kept_share_for_w(const PipelineFlags& flags);

// `step`: of the schedule, an action a task; the timeline is of its tasks. What the trainer does beside them (the
// norm of the gradients, the update, with two pipes the sums over a stage's copies) is left out; an action lasts from
// its first piece to its last. Lists of schedules that keep versions of the weights run with one.
EmulatedRuns run_real(const schedules::Schedule& schedule, const schedules::Step& step, const PipelineFlags& flags);

}  // namespace lockstep::pipeline
