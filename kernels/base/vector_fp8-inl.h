// Vectors of f32 from and to narrow floats by integer arithmetic, for sources that use Highway: included once a target.
// Results are those of core/narrow_float.h bit for bit: round to nearest even; overflow to infinity, or NaN where a
// format has none; one NaN a sign. vector_fp8_test.cpp compares all of them.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_FP8_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_FP8_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_FP8_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/narrow_float.h"
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sign, exponent, mantissa from the top. `kInfinity`: the largest exponent holds infinity and NaNs; if not, its numbers
// are finite and only the largest code is NaN.
template <int kExponent, int kMantissa, bool kInfinity>
struct NarrowFormat {
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kShift = 23 - kMantissa;  // from f32's mantissa
  static constexpr int kSignShift = 31 - kExponent - kMantissa;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr std::int32_t kMagnitude = (1 << (kExponent + kMantissa)) - 1;
  // The first code that is no finite number, and the code of NaN.
  static constexpr std::int32_t kOverflow = kInfinity ? kMagnitude - (1 << kMantissa) + 1 : kMagnitude;
  static constexpr std::int32_t kNan = kInfinity ? kOverflow | 1 << (kMantissa - 1) : kMagnitude;
  static constexpr bool kHasInfinity = kInfinity;
  // As bits of f32: the smallest normal number, and the number whose unit in the last place is the smallest subnormal.
  static constexpr std::int32_t kSmallestNormal = (127 + 1 - kBias) << 23;
  static constexpr std::int32_t kSubnormalUnit = (127 + 1 - kBias - kMantissa + 23) << 23;
  static constexpr std::int32_t kRebias = (127 - kBias) << 23;
};
using FormatF16 = NarrowFormat<5, 10, true>;
using FormatE4M3 = NarrowFormat<4, 3, false>;
using FormatE5M2 = NarrowFormat<5, 2, true>;

using I32 = hn::RebindToSigned<F32>;
using VI32 = hn::Vec<I32>;

// The codes of `value`, each in the low bits of its lane.
template <class Format>
HWY_INLINE VI32 encode(VF32 value) {
  const I32 d;
  const VI32 bits = hn::BitCast(d, value);
  const VI32 magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
  // Half a unit less one, and one if the last bit that stays is odd, carries exactly where a number is rounded up.
  const VI32 odd = hn::And(hn::ShiftRight<Format::kShift>(magnitude), hn::Set(d, 1));
  const VI32 biased = hn::Sub(magnitude, hn::Set(d, Format::kRebias));
  const VI32 carried = hn::Add(hn::Add(biased, odd), hn::Set(d, (1 << (Format::kShift - 1)) - 1));
  const VI32 normal = hn::ShiftRight<Format::kShift>(carried);
  // The addition rounds to a multiple of the smallest subnormal, as that is the unit of its result.
  const VI32 unit = hn::Set(d, Format::kSubnormalUnit);
  const VF32 sum = hn::Add(hn::BitCast(F32(), magnitude), hn::BitCast(F32(), unit));
  const VI32 subnormal = hn::Sub(hn::BitCast(d, sum), unit);
  const auto is_small = hn::Lt(magnitude, hn::Set(d, Format::kSmallestNormal));
  VI32 code = hn::Min(hn::IfThenElse(is_small, subnormal, normal), hn::Set(d, Format::kOverflow));
  if constexpr (Format::kHasInfinity) {
    const auto is_nan = hn::Gt(magnitude, hn::Set(d, 0x7f800000));
    code = hn::IfThenElse(is_nan, hn::Set(d, Format::kNan), code);
  }
  const VI32 sign = hn::And(hn::ShiftRight<Format::kSignShift>(bits), hn::Set(d, Format::kMagnitude + 1));
  return hn::Or(code, sign);
}

// The numbers of codes, each in the low bits of its lane with zeros above.
template <class Format>
HWY_INLINE VF32 decode(VI32 codes) {
  const I32 d;
  const F32 df;
  const VI32 magnitude = hn::And(codes, hn::Set(d, Format::kMagnitude));
  const VI32 sign = hn::ShiftLeft<Format::kSignShift>(hn::Xor(codes, magnitude));
  const VI32 normal = hn::Add(hn::ShiftLeft<Format::kShift>(magnitude), hn::Set(d, Format::kRebias));
  // A subnormal is read as if it had the hidden bit, which is then taken away.
  const VI32 hidden = hn::Set(d, Format::kSmallestNormal);
  const VI32 with_hidden = hn::Or(hn::ShiftLeft<Format::kShift>(magnitude), hidden);
  const VF32 subnormal = hn::Sub(hn::BitCast(df, with_hidden), hn::BitCast(df, hidden));
  const auto is_small = hn::Lt(magnitude, hn::Set(d, 1 << Format::kMantissaBits));
  VI32 bits = hn::IfThenElse(is_small, hn::BitCast(d, subnormal), normal);
  if constexpr (Format::kHasInfinity) {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, Format::kOverflow)), hn::Set(d, 0x7f800000), bits);
    bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, Format::kOverflow)), hn::Set(d, 0x7fc00000), bits);
  } else {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, Format::kNan)), hn::Set(d, 0x7fc00000), bits);
  }
  return hn::BitCast(df, hn::Or(bits, sign));
}

HWY_INLINE VI32 load_bytes(const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, F32> d8;
  const hn::RebindToUnsigned<F32> du;
  return hn::BitCast(I32(), hn::PromoteTo(du, hn::LoadU(d8, from)));
}
HWY_INLINE void store_bytes(VI32 codes, std::uint8_t* to) {
  const hn::Rebind<std::uint8_t, F32> d8;
  const hn::RebindToUnsigned<F32> du;
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, codes)), d8, to);
}

HWY_INLINE VF32 load(const core::Float8E4M3* from) {
  return decode<FormatE4M3>(load_bytes(&from->bits));
}
HWY_INLINE VF32 load(const core::Float8E5M2* from) {
  return decode<FormatE5M2>(load_bytes(&from->bits));
}
HWY_INLINE void store(VF32 value, core::Float8E4M3* to) {
  store_bytes(encode<FormatE4M3>(value), &to->bits);
}
HWY_INLINE void store(VF32 value, core::Float8E5M2* to) {
  store_bytes(encode<FormatE5M2>(value), &to->bits);
}

// As the templates of vector_io-inl.h, which cannot see the functions above.
template <class Narrow>
HWY_INLINE VF32 load_tail_fp8(const Narrow* from, std::size_t count) {
  HWY_ALIGN Narrow padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, count);
  return load(padded);
}
template <class Narrow>
HWY_INLINE void store_tail_fp8(VF32 value, Narrow* to, std::size_t count) {
  HWY_ALIGN Narrow padded[HWY_MAX_BYTES / sizeof(float)];
  store(value, padded);
  std::memcpy(to, padded, count);
}
HWY_INLINE VF32 load_tail(const core::Float8E4M3* from, std::size_t count) {
  return load_tail_fp8(from, count);
}
HWY_INLINE VF32 load_tail(const core::Float8E5M2* from, std::size_t count) {
  return load_tail_fp8(from, count);
}
HWY_INLINE void store_tail(VF32 value, core::Float8E4M3* to, std::size_t count) {
  store_tail_fp8(value, to, count);
}
HWY_INLINE void store_tail(VF32 value, core::Float8E5M2* to, std::size_t count) {
  store_tail_fp8(value, to, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
