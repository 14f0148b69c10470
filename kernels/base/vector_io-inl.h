// Loads and stores vectors of f32 from and to arrays of float, BFloat16 and Float16, for sources that use Highway:
// included once per target. Rounds to nearest, ties to even.
//
// Loops process pairs of vectors. The lane of an element in a pair depends on T alone, so all arrays of one T agree.
// For BFloat16 the even elements are in `a` and the odd ones in `b`: two BFloat16 in 32 bits are then widened and
// narrowed by shifts and masks, without movement across lanes. For other types `a` has the first elements.
// load_in_order and store_in_order convert between a pair and an array of float in element order.
//
// Lanes past the end of an array are zero when loaded, and are not stored.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_IO_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using HalfU16 = hn::Rebind<std::uint16_t, F32>;
using HalfF16 = hn::Rebind<hwy::float16_t, F32>;
using VF32 = hn::Vec<F32>;

// True if masked loads and stores do not touch what the mask excludes (AVX-512). Otherwise tails go through a copy.
constexpr bool kMaskedTails = HWY_MEM_OPS_MIGHT_FAULT == 0 && HWY_TARGET != HWY_SCALAR;

inline std::size_t lanes_f32() {
  return hn::Lanes(F32());
}

constexpr std::size_t kLineBytes = 64;  // a line of the caches

// Prefetches what a loop that is at `at`, and advances by `step_bytes` per step, will soon read or write, so that
// memory transfers overlap with arithmetic; stores to uncached lines wait for them one after another. Does not fault
// past the end of an array. The distance was measured: 1 to 4 KiB ahead, quantisation from memory goes from 0.78 to
// 0.99 of the speed of a loop without arithmetic.
HWY_INLINE void prefetch_ahead(const void* at, std::size_t step_bytes) {
  constexpr std::size_t kAheadBytes = 4096;
  const auto* ahead = static_cast<const std::uint8_t*>(at) + kAheadBytes;
  for (std::size_t i = 0; i < step_bytes; i += kLineBytes) hwy::Prefetch(ahead + i);
}

// True if the processor converts Float16. On other targets, Highway's own code returns 65536 for infinity.
constexpr bool kConvertsFloat16 = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

// Converts a Float16's bits in the lower half of each lane. The product corrects the exponent's bias, also for
// subnormals.
HWY_INLINE VF32 float16_value(hn::Vec<U32> bits) {
  const F32 d;
  const U32 du;
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
  const VF32 finite = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112F));
  const VF32 special = hn::BitCast(d, hn::Or(magnitude, hn::Set(du, 0x7f800000)));
  const auto is_special = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(du, 0x0f7fffff)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  return hn::Or(hn::IfThenElse(is_special, special, finite), hn::BitCast(d, sign));
}

// Returns the bits of the nearest Float16 in the lower half of each lane.
HWY_INLINE hn::Vec<U32> float16_bits(VF32 value) {
  const F32 d;
  const U32 du;
  const auto all = hn::BitCast(du, value);
  const auto magnitude = hn::And(all, hn::Set(du, 0x7fffffff));
  // Carries of the rounding go into the exponent, up to infinity's.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const auto rebased = hn::Sub(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfff))), hn::Set(du, 112u << 23));
  auto bits = hn::ShiftRight<13>(rebased);
  // Below 2^-14, adding 1/2 rounds to multiples of 2^-24.
  const VF32 shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F));
  const auto denormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3f000000));
  bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000)), denormal, bits);
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fffff)), hn::Set(du, 0x7c00), bits);
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000)), hn::Set(du, 0x7e00), bits);
  return hn::Or(bits, hn::And(hn::ShiftRight<16>(all), hn::Set(du, 0x8000)));
}

// Single vectors, elements in order.

HWY_INLINE VF32 load(const float* from) {
  return hn::LoadU(F32(), from);
}
HWY_INLINE VF32 load(const core::BFloat16* from) {
  const auto bits = hn::LoadU(HalfU16(), reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}
HWY_INLINE VF32 load(const core::Float16* from) {
  if constexpr (kConvertsFloat16) {
    return hn::PromoteTo(F32(), hn::LoadU(HalfF16(), reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    return float16_value(hn::PromoteTo(U32(), hn::LoadU(HalfU16(), reinterpret_cast<const std::uint16_t*>(from))));
  }
}

// Returns the bits of a BFloat16 in the upper half of each lane; the lower half is undefined. The first version takes
// numbers, infinity, and NaNs whose lower half is 0, such as those that the processor or BFloat16 operands produce; the
// second takes any value, see core::to_bfloat16.
HWY_INLINE hn::Vec<U32> bfloat16_bits_of_number(VF32 value) {
  const U32 d;
  const auto bits = hn::BitCast(d, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff)));
}
HWY_INLINE hn::Vec<U32> bfloat16_bits(VF32 value) {
  const U32 d;
  const auto quiet = hn::Or(hn::BitCast(d, value), hn::Set(d, 0x400000));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(value)), quiet, bfloat16_bits_of_number(value));
}

HWY_INLINE void store(VF32 value, float* to) {
  hn::StoreU(value, F32(), to);
}
HWY_INLINE void store(VF32 value, core::BFloat16* to) {
  const auto bits = hn::ShiftRight<16>(bfloat16_bits(value));
  hn::StoreU(hn::TruncateTo(HalfU16(), bits), HalfU16(), reinterpret_cast<std::uint16_t*>(to));
}
HWY_INLINE void store(VF32 value, core::Float16* to) {
  if constexpr (kConvertsFloat16) {
    hn::StoreU(hn::DemoteTo(HalfF16(), value), HalfF16(), reinterpret_cast<hwy::float16_t*>(to));
  } else {
    hn::StoreU(hn::TruncateTo(HalfU16(), float16_bits(value)), HalfU16(), reinterpret_cast<std::uint16_t*>(to));
  }
}

// `count` is less than the number of lanes.
HWY_INLINE VF32 load_tail(const float* from, std::size_t count) {
  if constexpr (kMaskedTails) return hn::MaskedLoad(hn::FirstN(F32(), count), F32(), from);
  HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, count * sizeof(float));
  return load(padded);
}
template <class T>
HWY_INLINE VF32 load_tail(const T* from, std::size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  if constexpr (kMaskedTails) {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
    auto* copy = reinterpret_cast<std::uint16_t*>(padded);
    hn::StoreU(hn::MaskedLoad(hn::FirstN(HalfU16(), count), HalfU16(), bits), HalfU16(), copy);
  } else {
    std::memcpy(padded, from, count * sizeof(T));
  }
  return load(padded);
}
template <class T>
HWY_INLINE void store_tail(VF32 value, T* to, std::size_t count) {
  if constexpr (kMaskedTails && sizeof(T) == sizeof(float)) {
    hn::BlendedStore(value, hn::FirstN(F32(), count), F32(), to);
  } else {
    HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
    store(value, padded);
    std::memcpy(to, padded, count * sizeof(T));
  }
}

// Pairs of vectors.

struct Pair {
  VF32 a;
  VF32 b;
};

inline std::size_t pair_elems() {
  return 2 * hn::Lanes(F32());
}

// True if `a` has the even elements. A vector of one lane has no halves and needs none.
template <class T>
concept EvenAndOdd = std::is_same_v<T, core::BFloat16> && HWY_TARGET != HWY_SCALAR;
// Vector type for the bits of an EvenAndOdd T, with twice as many lanes as F32.
template <EvenAndOdd T>
using Halves = hn::Repartition<decltype(T::bits), F32>;
template <class T>
HWY_INLINE const std::uint16_t* bits_at(const T* from) {
  return reinterpret_cast<const std::uint16_t*>(from);
}
template <class T>
HWY_INLINE std::uint16_t* bits_at(T* to) {
  return reinterpret_cast<std::uint16_t*>(to);
}

template <class V>
HWY_INLINE Pair pair_of_bits(V halves) {
  const auto bits = hn::BitCast(U32(), halves);
  return {hn::BitCast(F32(), hn::ShiftLeft<16>(bits)), hn::BitCast(F32(), hn::And(bits, hn::Set(U32(), 0xffff0000u)))};
}
template <EvenAndOdd T, class V>
HWY_INLINE auto pair_of_upper_halves(V a, V b) {
  return hn::OddEven(hn::BitCast(Halves<T>(), b), hn::BitCast(Halves<T>(), hn::ShiftRight<16>(a)));
}
template <EvenAndOdd T>
HWY_INLINE auto bits_of_pair(Pair value) {
  return pair_of_upper_halves<T>(bfloat16_bits(value.a), bfloat16_bits(value.b));
}

template <class T>
HWY_INLINE Pair load_pair(const T* from) {
  return {load(from), load(from + lanes_f32())};
}
template <EvenAndOdd T>
HWY_INLINE Pair load_pair(const T* from) {
  return pair_of_bits(hn::LoadU(Halves<T>(), bits_at(from)));
}
template <class T>
HWY_INLINE void store_pair(Pair value, T* to) {
  store(value.a, to);
  store(value.b, to + lanes_f32());
}
template <EvenAndOdd T>
HWY_INLINE void store_pair(Pair value, T* to) {
  hn::StoreU(bits_of_pair<T>(value), Halves<T>(), bits_at(to));
}

// Stores a pair in which every NaN has a zero lower half.
template <class T>
HWY_INLINE void store_numbers(Pair value, T* to) {
  store_pair(value, to);
}
template <EvenAndOdd T>
HWY_INLINE void store_numbers(Pair value, T* to) {
  const auto bits = pair_of_upper_halves<T>(bfloat16_bits_of_number(value.a), bfloat16_bits_of_number(value.b));
  hn::StoreU(bits, Halves<T>(), bits_at(to));
}

// Non-temporal store. `to` is aligned to a vector; hwy::FlushStream() must follow before another thread reads.
template <class T>
HWY_INLINE void stream_pair(Pair value, T* to) {
  HWY_ALIGN T elems[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  store_pair(value, elems);
  const F32 d;
  const auto* from = reinterpret_cast<const float*>(elems);
  for (std::size_t i = 0; i < pair_elems() * sizeof(T) / sizeof(float); i += hn::Lanes(d)) {
    hn::Stream(hn::Load(d, from + i), d, reinterpret_cast<float*>(to) + i);
  }
}
HWY_INLINE void stream_pair(Pair value, float* to) {
  hn::Stream(value.a, F32(), to);
  hn::Stream(value.b, F32(), to + lanes_f32());
}
template <EvenAndOdd T>
HWY_INLINE void stream_pair(Pair value, T* to) {
  hn::Stream(bits_of_pair<T>(value), Halves<T>(), bits_at(to));
}

// `count` is less than pair_elems().
template <class T>
HWY_INLINE Pair load_pair_tail(const T* from, std::size_t count) {
  HWY_ALIGN T padded[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return load_pair(padded);
}
HWY_INLINE Pair load_pair_tail(const float* from, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  if (count < lanes) return {load_tail(from, count), hn::Zero(F32())};
  return {load(from), load_tail(from + lanes, count - lanes)};
}
template <EvenAndOdd T>
requires kMaskedTails HWY_INLINE Pair load_pair_tail(const T* from, std::size_t count) {
  return pair_of_bits(hn::MaskedLoad(hn::FirstN(Halves<T>(), count), Halves<T>(), bits_at(from)));
}

template <class T>
HWY_INLINE void store_pair_tail(Pair value, T* to, std::size_t count) {
  HWY_ALIGN T padded[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  store_pair(value, padded);
  std::memcpy(to, padded, count * sizeof(T));
}
HWY_INLINE void store_pair_tail(Pair value, float* to, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  if (count < lanes) return store_tail(value.a, to, count);
  store(value.a, to);
  store_tail(value.b, to + lanes, count - lanes);
}
template <EvenAndOdd T>
requires kMaskedTails HWY_INLINE void store_pair_tail(Pair value, T* to, std::size_t count) {
  hn::BlendedStore(bits_of_pair<T>(value), hn::FirstN(Halves<T>(), count), Halves<T>(), bits_at(to));
}

// Converts between a pair of T and floats in element order.
template <class T>
HWY_INLINE Pair load_in_order(const float* from) {
  if constexpr (EvenAndOdd<T>) {
    Pair value;
    hn::LoadInterleaved2(F32(), from, value.a, value.b);
    return value;
  } else {
    return load_pair(from);
  }
}
template <class T>
HWY_INLINE void store_in_order(Pair value, float* to) {
  if constexpr (EvenAndOdd<T>) {
    hn::StoreInterleaved2(value.a, value.b, F32(), to);
  } else {
    store_pair(value, to);
  }
}

// Returns `value`, with `other` in the lanes of elements from `count` on.
template <class T>
HWY_INLINE Pair first_elems(Pair value, std::size_t count, VF32 other) {
  const F32 d;
  const std::size_t lanes = lanes_f32();
  const std::size_t in_a = EvenAndOdd<T> ? (count + 1) / 2 : count < lanes ? count : lanes;
  return {hn::IfThenElse(hn::FirstN(d, in_a), value.a, other),
          hn::IfThenElse(hn::FirstN(d, count - in_a), value.b, other)};
}

// How a loop's body accesses arrays: in whole pairs, or in the last `count` elements. `stream` is stream_pair for whole
// pairs; or_else puts `other` into the lanes past the end.
template <class T>
struct WholePair {
  HWY_INLINE Pair load(const T* from) const { return load_pair(from); }
  HWY_INLINE void store(Pair value, T* to) const { store_pair(value, to); }
  HWY_INLINE void stream(Pair value, T* to) const { stream_pair(value, to); }
  HWY_INLINE Pair or_else(Pair value, VF32 /*other*/) const { return value; }
};
template <class T>
struct PartPair {
  std::size_t count;
  HWY_INLINE Pair load(const T* from) const { return load_pair_tail(from, count); }
  HWY_INLINE void store(Pair value, T* to) const { store_pair_tail(value, to, count); }
  HWY_INLINE void stream(Pair value, T* to) const { store(value, to); }
  HWY_INLINE Pair or_else(Pair value, VF32 other) const { return first_elems<T>(value, count, other); }
};

// Calls body(i, WholePair or PartPair) for i = 0, pair_elems(), ... below `count`.
template <class T, class Body>
HWY_INLINE void for_pairs(std::size_t count, const Body& body) {
  const std::size_t step = pair_elems();
  std::size_t i = 0;
  for (; i + step <= count; i += step) body(i, WholePair<T>());
  if (i < count) body(i, PartPair<T>{count - i});
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
