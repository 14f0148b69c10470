// GELU and its derivative in CUDA kernels; see activation.h.
#pragma once

#include "kernels/base/cuda_instructions.cuh"

namespace lockstep::kernels::gelu_math {

inline constexpr float kScale = 0.7978845608028654F;  // sqrt(2 / pi)
inline constexpr float kCubic = 0.044715F;
// From here on, GELU is x or 0 in f32; its terms would overflow.
inline constexpr float kFar = 16.0F;

__device__ __forceinline__ float clamped(float x) {  // keeps NaN, unlike fminf
  return x < -kFar ? -kFar : (x > kFar ? kFar : x);
}

// (1 + tanh u) / 2 is the logistic function of 2u. Written with exp(-2|u|), which is at most 1, neither it nor its
// complement loses digits.
struct Logistic {
  float value;
  float slope;  // value * (1 - value)
};
__device__ __forceinline__ Logistic logistic(float z) {
  const float e = expf(-fabsf(z));
  const float inverse = __fdividef(1.0F, 1.0F + e);
  return {z < 0 ? e * inverse : inverse, e * inverse * inverse};
}

__device__ __forceinline__ float gelu(float x) {
  const float c = clamped(x);
  const float value = logistic(2 * kScale * c * (1 + kCubic * c * c)).value;
  return (x < -kFar ? c : x) * value;  // -infinity gives -0
}

__device__ __forceinline__ float gelu_slope(float x) {
  const float c = clamped(x);
  const float cubic = kCubic * c * c;
  const Logistic s = logistic(2 * kScale * c * (1 + cubic));
  return s.value + 2 * c * s.slope * kScale * (1 + 3 * cubic);
}

// The same for elements of 16 bits, whose rounding hides a relative error of 2^-16: the logistic function by a power of
// two and a reciprocal of the special function units. tanh.approx would need one instruction less, but its error of
// 2^-11 is not relative to GELU's small values below 0, where 1 + tanh cancels.
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kTwoLog2E = 2 * kLog2E * kScale;

// exp2(-t) for the logistic function's argument; x is at least -kFar, so that no product with 0 is infinite.
__device__ __forceinline__ float short_power(float x) {
  return exp2_approx(x * fmaf(-kTwoLog2E * kCubic, x * x, -kTwoLog2E));
}

__device__ __forceinline__ float short_gelu(float x) {
  const float c = x < -kFar ? -kFar : x;  // NaN stays NaN
  return c * reciprocal_approx(1 + short_power(c));
}

// Returns s + x s (1 - s) t'(x), with s the logistic function of t(x).
__device__ __forceinline__ float short_gelu_slope(float x) {
  const float c = clamped(x);
  const float s = reciprocal_approx(1 + short_power(c));
  const float slope = c * fmaf(6 * kScale * kCubic, c * c, 2 * kScale);
  return s * fmaf(1 - s, slope, 1);
}

// Chooses the version for elements of type T.
template <class T>
__device__ __forceinline__ float gelu_for(float x) {
  return sizeof(T) == 2 ? short_gelu(x) : gelu(x);
}
template <class T>
__device__ __forceinline__ float gelu_slope_for(float x) {
  return sizeof(T) == 2 ? short_gelu_slope(x) : gelu_slope(x);
}

}  // namespace lockstep::kernels::gelu_math
