// Times of a data-parallel step, as pure functions of its timelines.
#pragma once

#include <vector>

#include "bench/parallel/ddp_steps.h"
#include "schedules/step/timeline.h"

namespace lockstep::parallel_bench {

// Backward time in the kernels alone, mean over ranks: from the start of the first to the end of the last backward
// kernel of the last microbatch. Gradients can travel during this time.
double backward_ms(const schedules::Step& kernels, const schedules::StepTimeline& timeline);

// For each bucket, the time from the start of the step until the last rank has completed its gradients, without any
// communication.
std::vector<double> ready_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels);

// Step time by the recurrence of buckets (bench/pipeline/recurrence.h), from the kernels alone and the collectives
// alone: the slowest rank's kernels, plus the wait for its gradients.
double predicted_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels,
                    const schedules::StepTimeline& collectives);

// Exposed reductions of a step that ran with them (schedules/step/breakdown.h), mean over ranks.
double exposed_ms(const schedules::Step& step, const schedules::StepTimeline& timeline);

}  // namespace lockstep::parallel_bench
