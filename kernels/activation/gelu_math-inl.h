// GELU and its derivative on vectors of f32, for sources that use Highway: included once per target.
//
// (1 + tanh(v / 2)) / 2 = e^v / (1 + e^v), so y = x e^v / (1 + e^v) with v = 2 sqrt(2/pi) (x + 0.044715 x^3). No digits
// are lost where y is small, far below 0. e^v is computed as a power of two, with v / ln 2 taken directly from x.
//
// kRough is for results that are rounded to BFloat16, whose roundings are 2^-9: its relative error is up to 1.5e-4.
#if defined(LOCKSTEP_KERNELS_ACTIVATION_GELU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_ACTIVATION_GELU_MATH_INL_H_
#undef LOCKSTEP_KERNELS_ACTIVATION_GELU_MATH_INL_H_
#else
#define LOCKSTEP_KERNELS_ACTIVATION_GELU_MATH_INL_H_
#endif

#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr double kGeluDouble = 1.5957691216057308;        // 2 sqrt(2 / pi)
inline constexpr double kGeluDoubleCubic = 0.07135481627260025;  // 0.044715 times kGeluDouble
inline constexpr double kLog2E = 1.4426950408889634;

// Infinities are clamped to values at which e^v is 0, and at which 1 / e^v is below the rounding of 1.
inline constexpr float kGeluLow = -12.0F;  // v = -142
inline constexpr float kGeluHigh = 6.5F;   // v = 30
template <bool kRough>
HWY_INLINE VF32 gelu_exp(VF32 x, VF32 square) {
  const F32 d;
  const VF32 inner = hn::MulAdd(square, hn::Set(d, static_cast<float>(kGeluDoubleCubic * kLog2E)),
                                hn::Set(d, static_cast<float>(kGeluDouble * kLog2E)));
  return exp2_f32 < kRough ? 3 : 5 > (hn::Mul(x, inner));
}

// Returns 1 / (1 + e).
template <bool kRough>
HWY_INLINE VF32 gelu_rest(VF32 e) {
  const VF32 sum = hn::Add(e, hn::Set(F32(), 1.0F));
  return kRough ? rough_reciprocal_of_normal_f32(sum) : reciprocal_of_normal_f32(sum);
}

template <bool kRough = false>
HWY_INLINE VF32 gelu(VF32 x) {
  const VF32 low = at_least(kGeluLow, x);
  const VF32 bounded = at_most(kGeluHigh, low);
  const VF32 e = gelu_exp<kRough>(bounded, hn::Mul(bounded, bounded));
  return hn::Mul(low, hn::Mul(e, gelu_rest<kRough>(e)));
}

// With s = e^v / (1 + e^v), y' = s (1 + x v' / (1 + e^v)). 0 at -infinity, 1 at infinity.
template <bool kRough = false>
HWY_INLINE VF32 gelu_slope(VF32 x) {
  const F32 d;
  const VF32 bounded = at_most(kGeluHigh, at_least(kGeluLow, x));
  const VF32 square = hn::Mul(bounded, bounded);
  const VF32 e = gelu_exp<kRough>(bounded, square);
  const VF32 rest = gelu_rest<kRough>(e);
  const VF32 slope_of_v = hn::MulAdd(square, hn::Set(d, static_cast<float>(3 * kGeluDoubleCubic)),
                                     hn::Set(d, static_cast<float>(kGeluDouble)));
  const VF32 bent = hn::MulAdd(hn::Mul(bounded, slope_of_v), rest, hn::Set(d, 1.0F));
  return hn::Mul(hn::Mul(e, rest), bent);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
