// The same data-parallel step in four ways: with its reductions beside the backward, behind it, without them, and its
// reductions alone.
#pragma once

#include "schedules/step/step.h"
#include "trainer/step/train_step.h"
#include "trainer/train/options.h"

namespace lockstep::parallel_bench {

struct DdpSteps {
  trainer::TrainStep made;      // what the model is made from; its step has the norm, too, which is left out below
  schedules::Step overlapped;   // a bucket leaves as soon as its last gradient is there
  schedules::Step one_by_one;   // buckets leave when the backward has ended
  schedules::Step kernels;      // the step without collectives
  schedules::Step collectives;  // the step without kernels: buckets one after the other
};

// `options`: checked, ZeRO 0, one stage.
DdpSteps ddp_steps(const trainer::TrainOptions& options);

}  // namespace lockstep::parallel_bench
