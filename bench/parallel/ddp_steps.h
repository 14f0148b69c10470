// The same data-parallel step in four ways: with reductions during the backward, with reductions after it, without
// reductions, and reductions alone.
#pragma once

#include "schedules/step/step.h"
#include "trainer/step/train_step.h"
#include "trainer/train/options.h"

namespace lockstep::parallel_bench {

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

}  // namespace lockstep::parallel_bench
