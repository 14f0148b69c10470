#include "trainer/optimization/step_rules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::trainer {

double learning_rate(const LearningRate& rate, std::int64_t step) {
  if (step <= rate.warmup) return rate.peak * static_cast<double>(step) / static_cast<double>(rate.warmup);
  if (step >= rate.steps) return rate.floor;
  const double progress = static_cast<double>(step - rate.warmup) / static_cast<double>(rate.steps - rate.warmup);
  return rate.floor + (rate.peak - rate.floor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

LossScale first_loss_scale(const LossScaleOptions& options) {
  return {options.first, 0};
}

LossScale next_loss_scale(const LossScaleOptions& options, LossScale now, bool gradients_are_finite) {
  if (!gradients_are_finite) return {std::max(now.scale / 2, options.least), 0};
  if (now.good_steps + 1 < options.good_steps_to_double) return {now.scale, now.good_steps + 1};
  return {std::min(now.scale * 2, options.most), 0};
}

}  // namespace lockstep::trainer
