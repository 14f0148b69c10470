// The four ways in which ddp_overlap_bench times a step.
#pragma once

#include <vector>

#include "schedules/step/step.h"
#include "trainer/step/train_step.h"
#include "trainer/train/options.h"

namespace lockstep::parallel_bench {

// The same data-parallel step in four ways: with reductions during the backward, with reductions after it, without
// reductions, and reductions alone.

struct DdpSteps {
  trainer::TrainStep
      made;  // the model is made from this; its step contains the gradient norm, which the steps below leave out
  schedules::Step overlapped;   // a bucket is reduced as soon as its last gradient is complete
  schedules::Step one_by_one;   // buckets are reduced after the backward has ended
  schedules::Step kernels;      // the step without collectives
  schedules::Step collectives;  // the step without kernels: buckets one after the other
};

// Takes checked options with ZeRO stage 0 and one pipeline stage.
DdpSteps ddp_steps(const trainer::TrainOptions& options);

// Times of a data-parallel step, as pure functions of its timelines.

// Backward time in the kernels alone, mean over ranks: from the start of the first to the end of the last backward
// kernel of the last microbatch. Gradients can travel during this time.
double backward_ms(const schedules::Step& kernels, const schedules::StepTimeline& timeline);

// For each bucket, the time from the start of the step until the last rank has completed its gradients, without any
// communication.
std::vector<double> ready_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels);

// Step time by the recurrence of buckets (bench/pipeline/overlap.h), from the kernels alone and the collectives
// alone: the slowest rank's kernels, plus the wait for its gradients.
double predicted_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels,
                    const schedules::StepTimeline& collectives);

// Exposed reductions of a step that ran with them (schedules/step/breakdown.h), mean over ranks.
double exposed_ms(const schedules::Step& step, const schedules::StepTimeline& timeline);

}  // namespace lockstep::parallel_bench
