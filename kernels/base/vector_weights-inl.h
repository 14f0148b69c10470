// Weights of a softmax, for sources that use Highway: included once per target.
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
    // float, so that NaN survives in p; its bits for -127 are those of 0.
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
