// Converts arrays of one float type to another, and writes with non-temporal stores, for sources that use Highway:
// included once per target.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- f32 from and to narrow floats by integer arithmetic. Results equal core/dtype.h's: rounded to
// nearest, ties to even; overflow becomes infinity, or NaN if the format has none. Codes have equal bits, and f32 too,
// except for the bits of NaN. cast_test.cpp compares all codes on each instruction set.

// A format with sign, exponent and mantissa from the top. `kInfinity`: the largest exponent holds infinity and NaNs;
// otherwise its numbers are finite and only the largest code is NaN.
template <int kExponent, int kMantissa, bool kInfinity>
struct NarrowFormat {
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kShift = 23 - kMantissa;  // distance to f32's mantissa
  static constexpr int kSignShift = 31 - kExponent - kMantissa;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr std::int32_t kMagnitude = (1 << (kExponent + kMantissa)) - 1;
  // The smallest code above all finite numbers, and the code of NaN.
  static constexpr std::int32_t kOverflow = kInfinity ? kMagnitude - (1 << kMantissa) + 1 : kMagnitude;
  static constexpr std::int32_t kNan = kInfinity ? kOverflow | 1 << (kMantissa - 1) : kMagnitude;
  static constexpr bool kHasInfinity = kInfinity;
  // In bits of f32: the smallest normal number, and the smallest number that gets the code kOverflow.
  static constexpr std::int32_t kSmallestNormal = (127 + 1 - kBias) << 23;
  static constexpr std::int32_t kRebias = (127 - kBias) << 23;
  static constexpr std::int32_t kOverflowBits = (kOverflow << kShift) + kRebias;
};
using FormatE4M3 = NarrowFormat<4, 3, false>;
using FormatE5M2 = NarrowFormat<5, 2, true>;

using I32 = hn::RebindToSigned<F32>;
using VI32 = hn::Vec<I32>;

// Returns the codes of `value`, each in the low byte of its lane; the bits above are undefined. Adding 2^(e + 23 -
// mantissa bits) to a number with exponent e rounds it to the format's unit at e and leaves the number of units in the
// low bits of the sum; below the smallest normal number the unit stays the smallest's. The code is this number of units
// plus the exponent's distance from the smallest exponent. The part of the smallest exponent is already in the low bits
// of the added constant; it is even, so that ties still go to even.
template <class Format>
HWY_INLINE VI32 encode(VF32 value) {
  const I32 d;
  const F32 df;
  constexpr std::int32_t kSmallestPart = -(Format::kSmallestNormal >> Format::kShift) & 0xff;
  static_assert(kSmallestPart % 2 == 0);
  const VI32 bits = hn::BitCast(d, value);
  const VI32 magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
  const VI32 bounded = hn::Min(magnitude, hn::Set(d, Format::kOverflowBits));
  const VI32 exponent = hn::Max(hn::And(bounded, hn::Set(d, 0x7f800000)), hn::Set(d, Format::kSmallestNormal));
  const VI32 shifter = hn::Add(exponent, hn::Set(d, (Format::kShift << 23) + kSmallestPart));
  const VF32 sum = hn::Add(hn::BitCast(df, bounded), hn::BitCast(df, shifter));
  VI32 code = hn::Add(hn::BitCast(d, sum), hn::ShiftRight<Format::kShift>(exponent));
  if constexpr (Format::kHasInfinity) {
    const auto is_nan = hn::Gt(magnitude, hn::Set(d, 0x7f800000));
    code = hn::IfThenElse(is_nan, hn::Set(d, Format::kNan), code);
  }
  return hn::OrAnd(code, hn::ShiftRight<Format::kSignShift>(bits), hn::Set(d, Format::kMagnitude + 1));
}

// Returns the numbers for codes, each in the low bits of its lane with zeros above.
template <class Format>
HWY_INLINE VF32 decode(VI32 codes) {
  const I32 d;
  const F32 df;
  const VI32 magnitude = hn::And(codes, hn::Set(d, Format::kMagnitude));
  const VI32 sign = hn::ShiftLeft<Format::kSignShift>(hn::Xor(codes, magnitude));
  const VI32 normal = hn::Add(hn::ShiftLeft<Format::kShift>(magnitude), hn::Set(d, Format::kRebias));
  // A subnormal is read as if it had the hidden bit, which is then subtracted.
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

// Pairs of vectors with elements in order. If the processor converts Float16, codes are converted to it first: e5m2 is
// the upper half of f16, and e4m3 as bits of f16 is the number times 2^-8, except for NaN. These are templates because
// the scalar target has no vectors of two: Highway's functions are found by argument-dependent lookup.
template <class D>
HWY_INLINE Pair pair_of_f16(D /*d16*/, hn::Vec<D> halves) {
  const hn::Half<D> half;
  return {hn::PromoteTo(F32(), BitCast(HalfF16(), LowerHalf(half, halves))),
          hn::PromoteTo(F32(), BitCast(HalfF16(), UpperHalf(half, halves)))};
}
template <class D>
HWY_INLINE Pair load_by_f16(D d, const core::Float8E4M3* from) {
  const hn::Rebind<std::int8_t, D> d8;
  const auto codes = PromoteTo(d, LoadU(d8, reinterpret_cast<const std::int8_t*>(from)));
  const auto halves = And(ShiftLeft<7>(codes), Set(d, static_cast<std::int16_t>(0xbfff)));
  // Only NaN, the largest code, carries into the top bit of the exponent and then has all exponent bits set.
  const Pair small = pair_of_f16(d, OrAnd(halves, Add(halves, Set(d, 0x80)), Set(d, 0x4000)));
  const VF32 up = hn::Set(F32(), 256.0F);
  return {hn::Mul(small.a, up), hn::Mul(small.b, up)};
}
template <class D>
HWY_INLINE Pair load_by_f16(D d, const core::Float8E5M2* from) {
  const hn::Rebind<std::int8_t, D> d8;
  return pair_of_f16(d, ShiftLeft<8>(PromoteTo(d, LoadU(d8, reinterpret_cast<const std::int8_t*>(from)))));
}
template <class Format, class Narrow>
HWY_INLINE Pair load_pair_fp8(const Narrow* from) {
  if constexpr (kConvertsFloat16) {
    return load_by_f16(hn::Repartition<std::int16_t, F32>(), from);
  } else {
    return {decode<Format>(load_bytes(&from->bits)), decode<Format>(load_bytes(&from[lanes_f32()].bits))};
  }
}
HWY_INLINE Pair load_pair(const core::Float8E4M3* from) {
  return load_pair_fp8<FormatE4M3>(from);
}
HWY_INLINE Pair load_pair(const core::Float8E5M2* from) {
  return load_pair_fp8<FormatE5M2>(from);
}
HWY_INLINE void store_pair(Pair value, core::Float8E4M3* to) {
  store_bytes(encode<FormatE4M3>(value.a), &to->bits);
  store_bytes(encode<FormatE4M3>(value.b), &to[lanes_f32()].bits);
}
HWY_INLINE void store_pair(Pair value, core::Float8E5M2* to) {
  store_bytes(encode<FormatE5M2>(value.a), &to->bits);
  store_bytes(encode<FormatE5M2>(value.b), &to[lanes_f32()].bits);
}

// Overloads of the templates in vector_io-inl.h, which cannot see the functions above.
template <class Narrow>
HWY_INLINE Pair load_pair_tail_fp8(const Narrow* from, std::size_t count) {
  HWY_ALIGN Narrow padded[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, count);
  return load_pair(padded);
}
template <class Narrow>
HWY_INLINE void store_pair_tail_fp8(Pair value, Narrow* to, std::size_t count) {
  HWY_ALIGN Narrow padded[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  store_pair(value, padded);
  std::memcpy(to, padded, count);
}
HWY_INLINE Pair load_pair_tail(const core::Float8E4M3* from, std::size_t count) {
  return load_pair_tail_fp8(from, count);
}
HWY_INLINE Pair load_pair_tail(const core::Float8E5M2* from, std::size_t count) {
  return load_pair_tail_fp8(from, count);
}
HWY_INLINE void store_pair_tail(Pair value, core::Float8E4M3* to, std::size_t count) {
  store_pair_tail_fp8(value, to, count);
}
HWY_INLINE void store_pair_tail(Pair value, core::Float8E5M2* to, std::size_t count) {
  store_pair_tail_fp8(value, to, count);
}

// ---- magnitudes

// Returns the bits of |x|: as integers they have the order of the numbers, with infinity and then NaN last.
HWY_INLINE hn::Vec<I32> magnitude_bits(VF32 x) {
  return hn::And(hn::BitCast(I32(), x), hn::Set(I32(), 0x7fffffff));
}

// Returns the largest magnitude; NaN if one of x is NaN.
template <class D, class T>
HWY_INLINE float largest_magnitude(D /*d*/, const T* x, std::size_t count) {
  const I32 d;
  hn::Vec<I32> even = hn::Zero(d);
  hn::Vec<I32> odd = even;
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    const Pair p = part.load(x + i);
    even = hn::Max(even, magnitude_bits(p.a));
    odd = hn::Max(odd, magnitude_bits(p.b));
  });
  return hn::GetLane(hn::BitCast(F32(), hn::MaxOfLanes(d, hn::Max(even, odd))));
}
// The same for 16 bits without widening: their bits have the same order.
template <class D, EvenAndOdd T>
HWY_INLINE float largest_magnitude(D d, const T* x, std::size_t count) {
  const hn::Repartition<std::int16_t, D> d16;
  const std::size_t step = hn::Lanes(d16);
  const auto all = hn::Set(d16, 0x7fff);
  auto largest = hn::Zero(d16);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(x + i));
    largest = hn::Max(largest, hn::And(bits, all));
  }
  const auto wide = hn::BitCast(d, largest);
  auto of_two = hn::Max(hn::ShiftLeft<16>(wide), hn::And(wide, hn::Set(d, 0x7fff0000)));
  if (i < count) {
    const Pair p = load_pair_tail(x + i, count - i);
    of_two = hn::Max(of_two, hn::Max(magnitude_bits(p.a), magnitude_bits(p.b)));
  }
  return hn::GetLane(hn::BitCast(F32(), hn::MaxOfLanes(d, of_two)));
}

// ---- arrays

// Loads and stores pairs with elements in order, whatever T's own order of pairs is.
template <class T>
HWY_INLINE Pair load_ordered(const T* from) {
  return load_pair(from);
}
HWY_INLINE Pair load_ordered(const core::BFloat16* from) {
  return {load(from), load(from + lanes_f32())};
}
template <class T>
HWY_INLINE void store_ordered(Pair value, T* to) {
  store_pair(value, to);
}
HWY_INLINE void store_ordered(Pair value, core::BFloat16* to) {
  store(value.a, to);
  store(value.b, to + lanes_f32());
}

HWY_INLINE Pair scaled(Pair value, VF32 factor) {
  return {hn::Mul(value.a, factor), hn::Mul(value.b, factor)};
}

// y = x * scale in f32, rounded to To.
template <class From, class To>
void convert_elems(const From* x, To* y, std::size_t count, float scale) {
  const VF32 factor = hn::Set(F32(), scale);
  const std::size_t step = pair_elems();
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(x + i, step * sizeof(From));
    prefetch_ahead(y + i, step * sizeof(To));
    store_ordered(scaled(load_ordered(x + i), factor), y + i);
  }
  if (i == count) return;
  HWY_ALIGN From from[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN To to[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  std::memcpy(from, x + i, (count - i) * sizeof(From));
  store_ordered(scaled(load_ordered(from), factor), to);
  std::memcpy(y + i, to, (count - i) * sizeof(To));
}

// Copies with non-temporal stores, except for the lines shared with adjacent data. hwy::FlushStream() must follow
// before another thread reads.
inline void stream_copy(const void* from, void* to, std::size_t size_bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* source = static_cast<const std::uint8_t*>(from);
  auto* destination = static_cast<std::uint8_t*>(to);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t wanted = past == 0 ? 0 : kLineBytes - past;
  const std::size_t head = wanted < size_bytes ? wanted : size_bytes;
  std::memcpy(destination, source, head);
  const std::size_t end = head + (size_bytes - head) / kLineBytes * kLineBytes;
  for (std::size_t i = head; i < end; i += kLineBytes) {
    prefetch_ahead(source + i, kLineBytes);
    for (std::size_t k = 0; k < kLineBytes; k += lanes) {
      hn::Stream(hn::LoadU(d, source + i + k), d, destination + i + k);
    }
  }
  std::memcpy(destination + end, source + end, size_bytes - end);
}

// Calls produce(begin, count, destination) for blocks of y's elements. If y is to be written with non-temporal stores,
// blocks go through a buffer in the L1 cache. Blocks begin at multiples of `unit` elements.
template <class T, class Produce>
HWY_INLINE void produce_elems(T* y, std::size_t count, bool stream, std::size_t unit, const Produce& produce) {
  constexpr std::size_t kBufferElems = 4096 / sizeof(T);
  const std::size_t step = kBufferElems / unit * unit;
  if (!stream || step == 0) return produce(std::size_t{0}, count, y);
  HWY_ALIGN T buffer[kBufferElems];
  for (std::size_t i = 0; i < count; i += step) {
    const std::size_t elems = count - i < step ? count - i : step;
    produce(i, elems, static_cast<T*>(buffer));
    stream_copy(buffer, y + i, elems * sizeof(T));
  }
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
