// Runs a schedule with real kernels: the trainer runs it on the stages of a GPT.
#pragma once

#include "bench/pipeline/flags.h"
#include "bench/pipeline/result.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"

namespace lockstep::pipeline {

// Times of a microbatch on a rank's share, in ms: medians of one rank alone on the machine.
schedules::Times isolated_times_ms(const PipelineFlags& flags);

// Share of a stage's activations that its weight gradients still need after the input gradients.
double kept_share_for_w(const PipelineFlags& flags);

// `step`: the schedule's step, with one task per action; the timeline is of these tasks. The trainer's other work (the
// gradient norm, the update, with two pipes the sums over a stage's copies) is not included; an action lasts from its
// first piece to its last. Schedules that keep several versions of the weights run with one.
EmulatedRuns run_real(const schedules::Schedule& schedule, const schedules::Step& step, const PipelineFlags& flags);

}  // namespace lockstep::pipeline
