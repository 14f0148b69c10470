// Times of a data-parallel step, as pure functions of its timelines.
#pragma once

#include <vector>

#include "bench/parallel/ddp_steps.h"
#include "schedules/step/timeline.h"

namespace lockstep::parallel_bench {

// The backward's time in the kernels alone, the mean of the ranks: from the first to the last backward kernel of the
// last microbatch, beside which gradients can travel.
double backward_ms(const schedules::Step& kernels, const schedules::StepTimeline& timeline);

// For each bucket, from the start of the step: the time when the last rank has its last gradient, if nothing travels.
std::vector<double> ready_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels);

// How long the step should take by the buckets' recurrence (bench/pipeline/recurrence.h), from the kernels alone and
// the collectives alone: the slowest rank's kernels, and what its gradients wait for.
double predicted_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels,
                    const schedules::StepTimeline& collectives);

// Exposed reductions of a step that ran with them (schedules/step/breakdown.h), the mean of the ranks.
double exposed_ms(const schedules::Step& step, const schedules::StepTimeline& timeline);

}  // namespace lockstep::parallel_bench
