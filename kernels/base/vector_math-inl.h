// Functions of f32 vectors, for sources that use Highway: included once per target. The stated errors, in units in the
// last place of the exact result, are upper bounds that vector_math_test.cpp checks on each target, against f64.
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

constexpr bool kIsAvx512 = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;

// Returns x, or the bound if x is below or above it; NaN stays NaN. x86 returns the second operand if one is NaN.
HWY_INLINE VF32 at_least(float bound, VF32 x) {
  const VF32 low = hn::Set(F32(), bound);
  if constexpr (HWY_TARGET == HWY_SCALAR) return hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::Max(low, x);
}
HWY_INLINE VF32 at_most(float bound, VF32 x) {
  const VF32 high = hn::Set(F32(), bound);
  if constexpr (HWY_TARGET == HWY_SCALAR) return hn::IfThenElse(hn::Gt(x, high), high, x);
  return hn::Min(high, x);
}

// Operations that only AVX-512 has, as templates so that other targets need not know the instructions.

// Returns value * 2^power, including subnormals and infinity.
template <class V>
HWY_INLINE V scale_avx512(V value, V power) {
  return V{_mm512_scalef_ps(value.raw, power.raw)};
}
// The same with power rounded down, and 0 if power is below `least`.
template <class V>
HWY_INLINE V scale_from_avx512(V least, V value, V power) {
  const auto enough = hn::Not(hn::Lt(power, least));  // true for NaN, too
  return V{_mm512_maskz_scalef_ps(enough.raw, value.raw, power.raw)};
}
// Returns value - floor(value); 0 for infinities.
template <class V>
HWY_INLINE V fraction_avx512(V value) {
  constexpr int kDown = 1;
  return V{_mm512_reduce_ps(value.raw, kDown)};
}
// Returns the value, or the bound with the value's sign if it is beyond; the bound for NaN.
template <class V>
HWY_INLINE V within_avx512(V value, V bound) {
  constexpr int kSmallerMagnitudeWithSignOfFirst = 2;
  return V{_mm512_range_ps(value.raw, bound.raw, kSmallerMagnitudeWithSignOfFirst)};
}

// x = k ln 2 + r with integer k and |r| <= ln 2 / 2 (Cody, Waite 1980, Software Manual for the Elementary Functions,
// chapter 6). k is rounded by adding 1.5 * 2^23, which also leaves k in the low bits of `shifted`. |x| must be below
// 2^21.
struct Reduced {
  VF32 shifted;
  VF32 k;
  VF32 r;
};
HWY_INLINE Reduced reduced_by_ln2(VF32 x) {
  const F32 d;
  const VF32 magic = hn::Set(d, 12582912.0F);
  const VF32 shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341F), magic);
  const VF32 k = hn::Sub(shifted, magic);
  VF32 r = hn::NegMulAdd(k, hn::Set(d, 0.693145751953125F), x);  // a constant of 16 bits, so that k times it is exact
  r = hn::NegMulAdd(k, hn::Set(d, 1.428606765330187e-06F), r);
  return {shifted, k, r};
}

// Returns k of reduced_by_ln2 in the bits of an exponent.
HWY_INLINE hn::Vec<hn::RebindToSigned<F32>> exponent_bits(VF32 shifted) {
  return hn::ShiftLeft<23>(hn::BitCast(hn::RebindToSigned<F32>(), shifted));
}

// Returns e^r for |r| <= ln 2 / 2. The polynomial minimises the largest relative error, 1.5 * 2^-24, among 1 + r p(r)
// with p of degree 4.
HWY_INLINE VF32 exp_of_reduced_f32(VF32 r) {
  const F32 d;
  VF32 p = hn::MulAdd(hn::Set(d, 0.008290306F), r, hn::Set(d, 0.041897975F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16667637F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999915F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.9999997F));
  return hn::MulAdd(p, r, hn::Set(d, 1.0F));
}

// Returns e^x for x from -1000 to 88, or NaN; see exp_f32.
HWY_INLINE VF32 exp_of_bounded_f32(VF32 x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const Reduced reduced = reduced_by_ln2(x);
  const VF32 p = exp_of_reduced_f32(reduced.r);
  if constexpr (kIsAvx512) {
    return scale_avx512(p, reduced.k);
  } else {
    const VF32 scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent_bits(reduced.shifted)));
    const VF32 flushed = hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.33F)), hn::Zero(d), scaled);
    return hn::IfThenElse(hn::IsNaN(x), x, flushed);
  }
}

// Returns e^x for every x: far from 0, k is inexact but large enough for 2^k to be 0 or infinity, and r need only stay
// where e^r is positive; k of NaN is NaN.
template <class V>
HWY_INLINE V exp_avx512(V x) {
  const Reduced reduced = reduced_by_ln2(x);
  return scale_avx512(exp_of_reduced_f32(within_avx512(reduced.r, hn::Set(F32(), 0.36F))), reduced.k);
}

// Returns e^x for x up to 88, -infinity, or NaN.
HWY_INLINE VF32 exp_below_88_f32(VF32 x) {
  if constexpr (kIsAvx512) {
    return exp_avx512(x);
  } else {
    return exp_of_bounded_f32(at_least(-105.0F, x));
  }
}

// Returns e^x within 2 ulp (2.5 without fused multiply-add). Below -87.33 it returns 0 or, on AVX-512, the subnormal
// number, within two units of it; above 88.72283 infinity; NaN stays NaN.
HWY_INLINE VF32 exp_f32(VF32 x) {
  if constexpr (kIsAvx512) {
    return exp_avx512(x);
  } else {
    const F32 d;
    const VF32 value = exp_below_88_f32(at_most(89.0F, x));
    return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.72283F)), hn::Inf(d), value);
  }
}

// Returns 1 / x for |x| from 2^-126 to 2^126. AVX-512 uses an estimate of 14 bits and one step of Newton's method,
// within 1 ulp, at a quarter of a division's cost; other targets divide.
HWY_INLINE VF32 reciprocal_of_normal_f32(VF32 x) {
  const VF32 one = hn::Set(F32(), 1.0F);
  if constexpr (!kIsAvx512) return hn::Div(one, x);
  const VF32 guess = hn::ApproximateReciprocal(x);
  return hn::MulAdd(guess, hn::NegMulAdd(x, guess, one), guess);
}

// The same with a relative error of up to 2^-14.
HWY_INLINE VF32 rough_reciprocal_of_normal_f32(VF32 x) {
  if constexpr (kIsAvx512) return hn::ApproximateReciprocal(x);
  return hn::Div(hn::Set(F32(), 1.0F), x);
}

// ---- weights of a softmax

// Returns 2^f for f from 0 to 1, exact at 0: the polynomial with constant term 1 minimises the largest relative error
// for its degree.
template <int kDegree>
HWY_INLINE VF32 exp2_of_fraction(VF32 f) {
  static_assert(kDegree >= 3 && kDegree <= 5);
  const auto horner = [f](VF32 sum, float next) HWY_ATTR { return hn::MulAdd(sum, f, hn::Set(F32(), next)); };
  VF32 p;
  if constexpr (kDegree == 3) {
    p = horner(horner(hn::Set(F32(), 0.07706704F), 0.227645F), 0.69511676F);
  } else if constexpr (kDegree == 4) {
    p = horner(horner(hn::Set(F32(), 0.013426685F), 0.052242473F), 0.2412802F);
    p = horner(p, 0.69304484F);
  } else {
    p = horner(horner(hn::Set(F32(), 0.0018671423F), 0.009017001F), 0.05579994F);
    p = horner(horner(p, 0.24016444F), 0.6931513F);
  }
  return horner(p, 1.0F);
}
// Largest relative error of exp2_of_fraction, including the roundings after it.
template <int kDegree>
constexpr float kExp2Error = kDegree == 3   ? 8.6e-5F
                             : kDegree == 4 ? 3.1e-6F
                                            : 2.4e-7F;

// Returns 2^t for t below 128, but 0 below -126, where floats become subnormal: producing one stalls a core for 70 ns
// (Sapphire Rapids), and rows with masked or very unlikely elements are full of them. NaN stays NaN, 2^0 is 1. From 128
// on it is infinity (AVX-512) or above 1e38.
template <int kDegree = 5>
HWY_INLINE VF32 exp2_f32(VF32 t) {
  if constexpr (kIsAvx512) {
    const VF32 p = exp2_of_fraction<kDegree>(fraction_avx512(t));
    return scale_from_avx512(hn::Set(F32(), -126.0F), p, t);
  } else {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    // Subtracting 1/2 and adding 1.5 * 2^23 rounds down and leaves the integer in the low bits. The power is built as a
    // float, so that NaN survives in p; its bits for -127 equal 0's.
    const VF32 magic = hn::Set(d, 12582912.0F);
    const VF32 bounded = at_most(127.0F, at_least(-126.99F, t));
    const VF32 shifted = hn::Add(hn::Sub(bounded, hn::Set(d, 0.5F)), magic);
    const VF32 p = exp2_of_fraction<kDegree>(hn::Sub(bounded, hn::Sub(shifted, magic)));
    const auto power = hn::Add(exponent_bits(shifted), hn::BitCast(di, hn::Set(d, 1.0F)));
    return hn::Mul(p, hn::BitCast(d, power));
  }
}

// Returns e^x, but 0 below -87.33; NaN for NaN; above 88.7 as exp2_f32. Its relative error is at most
// kExp2Error<kDegree> plus 9e-8 |x|, because x is multiplied and rounded: a difference of two floats is as inexact
// itself.
template <int kDegree = 5>
HWY_INLINE VF32 weight_f32(VF32 x) {
  return exp2_f32<kDegree>(hn::Mul(x, hn::Set(F32(), 1.44269504088896341F)));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
