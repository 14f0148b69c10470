// GELU and its slope in CUDA kernels; see gelu.h.
#pragma once

namespace lockstep::kernels::gelu_math {

inline constexpr float kScale = 0.7978845608028654F;  // sqrt(2 / pi)
inline constexpr float kCubic = 0.044715F;
// From here on GELU is x or 0 in f32; beyond, its terms would overflow.
inline constexpr float kFar = 16.0F;

__device__ __forceinline__ float clamped(float x) {  // NaN stays NaN, as it does not in fminf
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

}  // namespace lockstep::kernels::gelu_math
