// The learning rate of a step: linear warm-up, then half a cosine down to a floor (Loshchilov and Hutter 2017,
// arXiv:1608.03983, equation 5, without restarts).
#pragma once

#include <cstdint>

namespace lockstep::trainer {

struct LearningRate {
  double peak = 1e-3;
  double floor = 0;           // minimum of the cosine, kept after `steps`
  std::int64_t warmup = 0;    // step `warmup` has the peak
  std::int64_t steps = 1000;  // step `steps` has the floor
};

// `step` counts from 1. A function of the step only, so that a run resumed from a checkpoint has the same rates.
double learning_rate(const LearningRate& rate, std::int64_t step);

}  // namespace lockstep::trainer
