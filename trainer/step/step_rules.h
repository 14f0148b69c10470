// Rules of an optimizer's step: learning rate and loss scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace lockstep::trainer {

// The learning rate of a step: linear warm-up, then half a cosine down to a floor (Loshchilov and Hutter 2017,
// arXiv:1608.03983, equation 5, without restarts).

struct LearningRate {
  double peak = 1e-3;
  double floor = 0;           // minimum of the cosine, kept after `steps`
  std::int64_t warmup = 0;    // step `warmup` has the peak
  std::int64_t steps = 1000;  // step `steps` has the floor
};

// `step` counts from 1. A function of the step only, so that a run resumed from a checkpoint has the same rates.
inline double learning_rate(const LearningRate& rate, std::int64_t step) {
  if (step <= rate.warmup) return rate.peak * static_cast<double>(step) / static_cast<double>(rate.warmup);
  if (step >= rate.steps) return rate.floor;
  const double progress = static_cast<double>(step - rate.warmup) / static_cast<double>(rate.steps - rate.warmup);
  return rate.floor + (rate.peak - rate.floor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

// Dynamic loss scaling for fp16 (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2, in the dynamic form of
// NVIDIA's training guide): gradients are those of scale * loss, so that small ones do not underflow. A step whose
// gradients overflow is skipped and halves the scale; a number of good steps in a row doubles it.

struct LossScaleOptions {
  float first = 65536;
  float least = 1;
  float most = 16777216;  // 2^24
  std::int32_t good_steps_to_double = 2000;
};

// The whole state, as a value that can be saved.
struct LossScale {
  float scale = 1;
  std::int32_t good_steps = 0;  // in a row since the scale last changed

  bool operator==(const LossScale&) const = default;
};

inline LossScale first_loss_scale(const LossScaleOptions& options) {
  return {options.first, 0};
}
// Call it after a step, with whether all gradients were finite.
inline LossScale next_loss_scale(const LossScaleOptions& options, LossScale now, bool gradients_are_finite) {
  if (!gradients_are_finite) return {std::max(now.scale / 2, options.least), 0};
  if (now.good_steps + 1 < options.good_steps_to_double) return {now.scale, now.good_steps + 1};
  return {std::min(now.scale * 2, options.most), 0};
}

}  // namespace lockstep::trainer
