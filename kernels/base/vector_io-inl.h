// Vectors of f32 from and to arrays of float, BFloat16 and Float16, for sources that use Highway: included once a
// target. Rounding is to nearest even. Tails: the lanes past the end are zero when loaded and are not stored.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/narrow_float.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;

inline std::size_t lanes_f32() {
  return hn::Lanes(F32());
}

HWY_INLINE VF32 load(const float* from) {
  return hn::LoadU(F32(), from);
}
HWY_INLINE VF32 load(const core::BFloat16* from) {
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<std::uint16_t, F32> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
HWY_INLINE VF32 load(const core::Float16* from) {
  const hn::Rebind<hwy::float16_t, F32> dh;
  return hn::PromoteTo(F32(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
}

HWY_INLINE void store(VF32 value, float* to) {
  hn::StoreU(value, F32(), to);
}
// NaN stays NaN; see core::to_bfloat16.
HWY_INLINE void store(VF32 value, core::BFloat16* to) {
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<std::uint16_t, F32> dh;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  hn::StoreU(hn::TruncateTo(dh, hn::IfThenElse(is_nan, quiet, rounded)), dh, reinterpret_cast<std::uint16_t*>(to));
}
HWY_INLINE void store(VF32 value, core::Float16* to) {
  const hn::Rebind<hwy::float16_t, F32> dh;
  hn::StoreU(hn::DemoteTo(dh, value), dh, reinterpret_cast<hwy::float16_t*>(to));
}

// `count` below the number of lanes.
template <class T>
HWY_INLINE VF32 load_tail(const T* from, std::size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return load(padded);
}
template <class T>
HWY_INLINE void store_tail(VF32 value, T* to, std::size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
  store(value, padded);
  std::memcpy(to, padded, count * sizeof(T));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
