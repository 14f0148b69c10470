// Weights of a softmax, for sources that use Highway: included once a target.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_WEIGHTS_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_WEIGHTS_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_WEIGHTS_INL_H_
#endif

#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x up to 88, as exact as exp_f32; 0 below -87.3, where floats become denormal: making one stops a core for 70
// ns (Sapphire Rapids), and rows with masked or very unlikely elements are full of them. NaN stays NaN.
HWY_INLINE VF32 weight_f32(VF32 x) {
  constexpr float kLeast = -87.3F;
  const VF32 e = exp_of_bounded_f32(at_least(kLeast, x));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(F32(), kLeast)), e);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
