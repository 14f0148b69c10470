// Functions of f32 vectors, for sources that use Highway: included once a target. The stated errors are measured by
// vector_math_test.cpp against f64.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_MATH_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_MATH_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x within 2 ulp; below -87.3 it is 0, above 88.7 infinity; NaN stays NaN. x = k ln 2 + r with |r| <= ln 2 / 2 (Cody,
// Waite 1980, Software Manual for the Elementary Functions, chapter 6), e^r by its Taylor polynomial of degree 6.
HWY_INLINE VF32 exp_f32(VF32 x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const VF32 k = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341F)));
  VF32 r = hn::NegMulAdd(k, hn::Set(d, 0.693145751953125F), x);
  r = hn::NegMulAdd(k, hn::Set(d, 1.428606765330187e-06F), r);
  VF32 p = hn::Set(d, 1.0F / 720);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  // Two factors, as 2^128 is no float although e^88.7 is.
  const auto exponent = hn::ConvertTo(di, k);
  const auto half = hn::ShiftRight<1>(exponent);
  const auto power = [&](auto e) { return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127)))); };
  const VF32 scaled = hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(exponent, half)));
  const VF32 low = hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.3F)), hn::Zero(d), scaled);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.7228F)), hn::Inf(d), low);
}

// tanh x = 1 - 2 / (e^2x + 1): the absolute error is within 2 ulp of 1; the relative error grows as 1 / |x| near 0.
HWY_INLINE VF32 tanh_f32(VF32 x) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F);
  const VF32 e = exp_f32(hn::Add(x, x));
  return hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(e, one)));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
