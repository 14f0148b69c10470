// Dynamic loss scaling for fp16 (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2, in the dynamic form of
// NVIDIA's training guide): gradients are those of scale * loss, so that small ones do not underflow. A step whose
// gradients overflow is skipped and halves the scale; a number of good steps in a row doubles it.
#pragma once

#include <cstdint>

namespace lockstep::trainer {

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

LossScale first_loss_scale(const LossScaleOptions& options);
// Call it after a step, with whether all gradients were finite.
LossScale next_loss_scale(const LossScaleOptions& options, LossScale now, bool gradients_are_finite);

}  // namespace lockstep::trainer
