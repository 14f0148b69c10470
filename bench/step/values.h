// Values of tensors on the host, and their comparison.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/device.h"
#include "kernels/base/view.h"

namespace lockstep::step_bench {

// Values in f32, bf16 or f16 as f32. No kernel may write them meanwhile.
std::vector<float> host_values(core::Device& device, const kernels::In& from);

inline double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

// Written so that a NaN is beyond every bound.
inline bool is_beyond(float found, float wanted, double bound) {
  return !(std::fabs(static_cast<double>(found) - static_cast<double>(wanted)) <= bound);
}

}  // namespace lockstep::step_bench
