#include "trainer/optimization/loss_scale.h"

#include <algorithm>

namespace lockstep::trainer {

LossScale first_loss_scale(const LossScaleOptions& options) {
  return {options.first, 0};
}

LossScale next_loss_scale(const LossScaleOptions& options, LossScale now, bool gradients_are_finite) {
  if (!gradients_are_finite) return {std::max(now.scale / 2, options.least), 0};
  if (now.good_steps + 1 < options.good_steps_to_double) return {now.scale, now.good_steps + 1};
  return {std::min(now.scale * 2, options.most), 0};
}

}  // namespace lockstep::trainer
