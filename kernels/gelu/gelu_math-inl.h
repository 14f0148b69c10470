// GELU and its derivative on vectors of f32, for sources that use Highway: included once a target.
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

inline constexpr float kGeluScaleF32 = 0.7978845608028654F;  // sqrt(2 / pi)
inline constexpr float kGeluCubicF32 = 0.044715F;

HWY_INLINE VF32 gelu(VF32 x) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F);
  const VF32 cubic = hn::Mul(hn::Mul(x, x), hn::Set(d, kGeluCubicF32));
  const VF32 inner = hn::Mul(hn::Mul(x, hn::Set(d, kGeluScaleF32)), hn::Add(one, cubic));
  return hn::Mul(hn::Mul(x, hn::Set(d, 0.5F)), hn::Add(one, tanh_f32(inner)));
}

HWY_INLINE VF32 gelu_slope(VF32 x) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F);
  const VF32 half = hn::Set(d, 0.5F);
  const VF32 cubic = hn::Mul(hn::Mul(x, x), hn::Set(d, kGeluCubicF32));
  const VF32 t = tanh_f32(hn::Mul(hn::Mul(x, hn::Set(d, kGeluScaleF32)), hn::Add(one, cubic)));
  const VF32 inner_slope = hn::Mul(hn::Set(d, kGeluScaleF32), hn::MulAdd(hn::Set(d, 3.0F), cubic, one));
  const VF32 left = hn::Mul(half, hn::Add(one, t));
  const VF32 right = hn::Mul(hn::Mul(hn::Mul(half, x), hn::NegMulAdd(t, t, one)), inner_slope);
  return hn::Add(left, right);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
