// Replaces the header of this name, which contains PTX.
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/emulated_cuda/cuda_runtime.h"

namespace lockstep::kernels {

inline constexpr float kLog2E = 1.4426950408889634F;

inline float flushed(float x) {
  return std::fabs(x) < FLT_MIN ? std::copysign(0.0F, x) : x;
}
inline float exp2_approx(float x) {
  return flushed(std::exp2(flushed(x)));
}
inline float reciprocal_approx(float x) {
  return flushed(1 / flushed(x));
}

}  // namespace lockstep::kernels
