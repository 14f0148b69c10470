// GELU and its derivative on vectors of f32, for sources that use Highway: included once a target.
//
// (1 + tanh(v / 2)) / 2 = e^v / (1 + e^v), so that y = x e^v / (1 + e^v) with v = 2 sqrt(2/pi) (x + 0.044715 x^3). No
// digits are lost where y is small, far below 0.
#if defined(LOCKSTEP_KERNELS_GELU_GELU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_GELU_GELU_MATH_INL_H_
#undef LOCKSTEP_KERNELS_GELU_GELU_MATH_INL_H_
#else
#define LOCKSTEP_KERNELS_GELU_GELU_MATH_INL_H_
#endif

#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kGeluDouble = 1.5957691216057308F;        // 2 sqrt(2 / pi)
inline constexpr float kGeluDoubleCubic = 0.07135481627260025F;  // 0.044715 times that

// Infinities are brought to where e^v is 0, and to where 1 / e^v vanishes beside 1.
inline constexpr float kGeluLow = -12.0F;  // v = -142
inline constexpr float kGeluHigh = 6.5F;   // v = 30
HWY_INLINE VF32 gelu_exp(VF32 x, VF32 square) {
  const F32 d;
  const VF32 inner = hn::MulAdd(square, hn::Set(d, kGeluDoubleCubic), hn::Set(d, kGeluDouble));
  return exp_of_bounded_f32(hn::Mul(x, inner));
}

HWY_INLINE VF32 gelu(VF32 x) {
  const VF32 low = at_least(kGeluLow, x);
  const VF32 bounded = at_most(kGeluHigh, low);
  const VF32 e = gelu_exp(bounded, hn::Mul(bounded, bounded));
  const VF32 share = hn::Mul(e, reciprocal_of_normal_f32(hn::Add(e, hn::Set(F32(), 1.0F))));
  return hn::Mul(low, share);
}

// With s = e^v / (1 + e^v), y' = s (1 + x v' / (1 + e^v)). 0 at -infinity, 1 at infinity.
HWY_INLINE VF32 gelu_slope(VF32 x) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F);
  const VF32 bounded = at_most(kGeluHigh, at_least(kGeluLow, x));
  const VF32 square = hn::Mul(bounded, bounded);
  const VF32 e = gelu_exp(bounded, square);
  const VF32 rest = reciprocal_of_normal_f32(hn::Add(e, one));
  const VF32 slope_of_v = hn::MulAdd(square, hn::Set(d, 3 * kGeluDoubleCubic), hn::Set(d, kGeluDouble));
  const VF32 bent = hn::MulAdd(hn::Mul(bounded, slope_of_v), rest, one);
  return hn::Mul(hn::Mul(e, rest), bent);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
