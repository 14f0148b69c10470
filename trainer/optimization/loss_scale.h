// Dynamic loss scaling for fp16 (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2, and the dynamic form that
// NVIDIA's training guide gives): gradients are computed of scale * loss, so that small ones do not vanish. A step
// whose gradients overflow is left out and halves the scale; so many good steps in a row double it.
#pragma once

#include <cstdint>

namespace lockstep::trainer {

struct LossScaleOptions {
  float first = 65536;
  float least = 1;
  float most = 16777216;  // 2^24
  std::int32_t good_steps_to_double = 2000;
};

// All there is to save: a value.
struct LossScale {
  float scale = 1;
  std::int32_t good_steps = 0;  // in a row, since the scale last changed

  bool operator==(const LossScale&) const = default;
};

LossScale first_loss_scale(const LossScaleOptions& options);
// After a step: whether all gradients were finite.
LossScale next_loss_scale(const LossScaleOptions& options, LossScale now, bool gradients_are_finite);

}  // namespace lockstep::trainer
