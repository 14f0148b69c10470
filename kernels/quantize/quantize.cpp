#include "kernels/quantize/quantize.h"

#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/base/caches.h"
#include "kernels/base/element_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/quantize.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

using DI32 = hn::RebindToSigned<F32>;
using DI8 = hn::Rebind<std::int8_t, F32>;

// Of |x|, whose bits as integers are ordered as the numbers, infinity and then NaN last.
HWY_INLINE hn::Vec<DI32> magnitude_bits(VF32 x) {
  return hn::And(hn::BitCast(DI32(), x), hn::Set(DI32(), 0x7fffffff));
}

// NaN if one of x is NaN.
template <class D, class T>
HWY_INLINE float largest_magnitude(D /*d*/, const T* x, std::size_t count) {
  const DI32 d;
  hn::Vec<DI32> even = hn::Zero(d);
  hn::Vec<DI32> odd = even;
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    prefetch_ahead(x + i, pair_elems() * sizeof(T));
    const Pair p = part.load(x + i);
    even = hn::Max(even, magnitude_bits(p.a));
    odd = hn::Max(odd, magnitude_bits(p.b));
  });
  return hn::GetLane(hn::BitCast(F32(), hn::MaxOfLanes(d, hn::Max(even, odd))));
}
// Of 16 bits without widening them: they are ordered likewise.
template <class D, EvenAndOdd T>
HWY_INLINE float largest_magnitude(D d, const T* x, std::size_t count) {
  const hn::Repartition<std::int16_t, D> d16;
  const std::size_t step = hn::Lanes(d16);
  const auto all = hn::Set(d16, 0x7fff);
  auto largest = hn::Zero(d16);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(x + i, step * sizeof(T));
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

HWY_INLINE hn::Vec<DI32> codes_of(VF32 x, VF32 inverse) {
  return hn::NearestInt(hn::Mul(x, inverse));
}

// The codes of a pair of x, in the order of elements.
template <class T>
HWY_INLINE void store_codes(const T* /*x*/, Pair value, VF32 inverse, std::int8_t* codes) {
  hn::StoreU(hn::DemoteTo(DI8(), codes_of(value.a, inverse)), DI8(), codes);
  hn::StoreU(hn::DemoteTo(DI8(), codes_of(value.b, inverse)), DI8(), codes + lanes_f32());
}
template <EvenAndOdd T>
HWY_INLINE void store_codes(const T* /*x*/, Pair value, VF32 inverse, std::int8_t* codes) {
  const auto odd = hn::ShiftLeft<8>(codes_of(value.b, inverse));
  const auto both_codes = hn::IfVecThenElse(hn::Set(DI32(), 0xff), codes_of(value.a, inverse), odd);
  const auto bits = hn::TruncateTo(HalfU16(), hn::BitCast(U32(), both_codes));
  hn::StoreU(bits, HalfU16(), reinterpret_cast<std::uint16_t*>(codes));
}

template <class T>
void encode_block(const T* x, std::int8_t* codes, float inverse, std::size_t count) {
  const std::size_t step = pair_elems();
  const VF32 factor = hn::Set(F32(), inverse);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(codes + i, step);
    store_codes(x, load_pair(x + i), factor, codes + i);
  }
  if (i == count) return;
  HWY_ALIGN std::int8_t padded[2 * HWY_MAX_BYTES / sizeof(float)];
  store_codes(x, load_pair_tail(x + i, count - i), factor, static_cast<std::int8_t*>(padded));
  std::memcpy(codes + i, padded, count - i);
}

// Codes of 4 bits are made of codes of 8, so many at once: a few vectors, and an even number of blocks' bytes.
constexpr std::size_t kPackedAtOnce = 256;

// Two codes of 8 bits to one byte. A last one that stands alone has zeros beside it.
HWY_INLINE void pack_codes(const std::int8_t* codes, std::uint8_t* bytes, std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d16;
  const hn::Rebind<std::uint8_t, decltype(d16)> d8;
  const std::size_t step = hn::Lanes(d16);
  std::size_t i = 0;
  for (; 2 * (i + step) <= count; i += step) {
    const auto pairs = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(codes + 2 * i));
    const auto low = hn::And(pairs, hn::Set(d16, 0x0f));
    const auto high = hn::And(hn::ShiftRight<4>(pairs), hn::Set(d16, 0xf0));
    hn::StoreU(hn::TruncateTo(d8, hn::Or(low, high)), d8, bytes + i);
  }
  for (; 2 * i < count; ++i) {
    const int high = 2 * i + 1 < count ? codes[2 * i + 1] : 0;
    bytes[i] = static_cast<std::uint8_t>((codes[2 * i] & 15) | (high & 15) << 4);
  }
}

HWY_INLINE void unpack_codes(const std::uint8_t* bytes, std::int8_t* codes, std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d16;
  const hn::Rebind<std::uint8_t, decltype(d16)> d8;
  const std::size_t step = hn::Lanes(d16);
  // Of 4 bits in two's complement: the sign's bit counts -8.
  const auto extended = [&](auto bits) HWY_ATTR {
    const auto sign = hn::Set(d16, 8);
    return hn::Sub(hn::Xor(bits, sign), sign);
  };
  std::size_t i = 0;
  for (; 2 * (i + step) <= count; i += step) {
    const auto two = hn::PromoteTo(d16, hn::LoadU(d8, bytes + i));
    const auto low = hn::And(extended(hn::And(two, hn::Set(d16, 0x0f))), hn::Set(d16, 0xff));
    const auto high = hn::ShiftLeft<8>(extended(hn::ShiftRight<4>(two)));
    hn::StoreU(hn::Or(low, high), d16, reinterpret_cast<std::uint16_t*>(codes + 2 * i));
  }
  const auto code = [](int bits) { return static_cast<std::int8_t>(((bits & 15) ^ 8) - 8); };
  for (; 2 * i < count; ++i) {
    codes[2 * i] = code(bytes[i]);
    if (2 * i + 1 < count) codes[2 * i + 1] = code(bytes[i] >> 4);
  }
}

template <class T>
void encode_codes(CodesOf<8> /*codes*/, const T* x, std::int8_t* to, float inverse, std::size_t count) {
  encode_block(x, to, inverse, count);
}
template <class T>
void encode_codes(CodesOf<4> /*codes*/, const T* x, std::uint8_t* to, float inverse, std::size_t count) {
  HWY_ALIGN std::int8_t codes[kPackedAtOnce];
  for (std::size_t i = 0; i < count; i += kPackedAtOnce) {
    const std::size_t some = HWY_MIN(kPackedAtOnce, count - i);
    encode_block(x + i, static_cast<std::int8_t*>(codes), inverse, some);
    pack_codes(static_cast<const std::int8_t*>(codes), to + i / 2, some);
  }
}

template <class Codes, class T, class Code>
float quantize_block(Codes codes, const T* x, Code* to, std::size_t count) {
  const float largest = largest_magnitude(DI32(), x, count);
  const bool finite = largest <= std::numeric_limits<float>::max();
  if (finite && largest >= Codes::kSmallestLargest) {
    encode_codes(codes, x, to, Codes::kLargest / largest, count);
    return largest / Codes::kLargest;
  }
  std::memset(to, 0, static_cast<std::size_t>(Codes::bytes(static_cast<std::int64_t>(count))));
  return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
}

// Codes as floats, in the order of pairs of y.
template <class T>
HWY_INLINE Pair load_codes(const std::int8_t* codes, const T* /*y*/) {
  const DI32 d;
  return {hn::ConvertTo(F32(), hn::PromoteTo(d, hn::LoadU(DI8(), codes))),
          hn::ConvertTo(F32(), hn::PromoteTo(d, hn::LoadU(DI8(), codes + lanes_f32())))};
}
template <EvenAndOdd T>
HWY_INLINE Pair load_codes(const std::int8_t* codes, const T* /*y*/) {
  const hn::Rebind<std::int16_t, F32> d16;
  const auto two = hn::PromoteTo(DI32(), hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(codes)));
  return {hn::ConvertTo(F32(), hn::ShiftRight<24>(hn::ShiftLeft<24>(two))),
          hn::ConvertTo(F32(), hn::ShiftRight<8>(two))};
}

template <class T>
void dequantize_block(const std::int8_t* codes, float scale, T* y, std::size_t count) {
  const std::size_t step = pair_elems();
  const VF32 factor = hn::Set(F32(), scale == scale ? scale : std::numeric_limits<float>::quiet_NaN());
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(codes + i, step);
    prefetch_ahead(y + i, step * sizeof(T));
    store_numbers(scaled(load_codes(codes + i, y), factor), y + i);
  }
  if (i == count) return;
  HWY_ALIGN std::int8_t padded[2 * HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, codes + i, count - i);
  store_pair_tail(scaled(load_codes(padded, y), factor), y + i, count - i);
}

template <class T>
void decode_codes(CodesOf<8> /*codes*/, const std::int8_t* from, float scale, T* y, std::size_t count) {
  dequantize_block(from, scale, y, count);
}
template <class T>
void decode_codes(CodesOf<4> /*codes*/, const std::uint8_t* from, float scale, T* y, std::size_t count) {
  HWY_ALIGN std::int8_t codes[kPackedAtOnce];
  for (std::size_t i = 0; i < count; i += kPackedAtOnce) {
    const std::size_t some = HWY_MIN(kPackedAtOnce, count - i);
    unpack_codes(from + i / 2, static_cast<std::int8_t*>(codes), some);
    dequantize_block(static_cast<const std::int8_t*>(codes), scale, y + i, some);
  }
}

// Elements [begin, end) of blocks [first, last).
struct Span {
  std::int64_t begin;
  std::size_t count;
};
template <class Args>
Span elems_of(const Args& args, std::int64_t first, std::int64_t last) {
  const std::int64_t begin = first * args.block;
  const std::int64_t end = last * args.block;
  return {begin, static_cast<std::size_t>((end < args.count ? end : args.count) - begin)};
}

// Calls work(i, count, block) for each block of `count` elements that begin with a block.
template <class Work>
HWY_INLINE void for_blocks(std::size_t count, std::size_t block, const Work& work) {
  for (std::size_t i = 0; i < count; i += block) work(i, count - i < block ? count - i : block, i / block);
}

// Codes are not written past the caches, as more is read than written: see run_cpu of a Cast.
template <class Code, class Args>
void quantize_blocks(const Args& args, std::int64_t first, std::int64_t last) {
  using Codes = typename Args::Codes;
  const auto block = static_cast<std::size_t>(args.block);
  const Span span = elems_of(args, first, last);
  float* const scales = args.scales.template as<float>() + first;
  with_activation_type(args.x.dtype, [&](auto zero) {
    const auto* x = args.x.template as<decltype(zero)>() + span.begin;
    Code* const codes = args.codes.template as<Code>() + Codes::bytes(span.begin);
    for_blocks(span.count, block, [&](std::size_t i, std::size_t elems, std::size_t k) {
      scales[k] = quantize_block(Codes(), x + i, codes + i / Codes::kInAByte, elems);
    });
  });
}

template <class Code, class Args>
void dequantize_blocks(const Args& args, bool stream, std::int64_t first, std::int64_t last) {
  using Codes = typename Args::Codes;
  const auto block = static_cast<std::size_t>(args.block);
  const Span span = elems_of(args, first, last);
  const float* const scales = args.scales.template as<float>() + first;
  const auto* codes = args.codes.template as<Code>() + Codes::bytes(span.begin);
  with_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto produce = [&](std::size_t begin, std::size_t count, T* y) {
      for_blocks(count, block, [&](std::size_t i, std::size_t elems, std::size_t k) {
        decode_codes(Codes(), codes + (begin + i) / Codes::kInAByte, scales[begin / block + k], y + i, elems);
      });
    };
    produce_elems(args.y.template as<T>() + span.begin, span.count, stream, block, produce);
  });
}

void quantize8(const Quantize& args, std::int64_t first, std::int64_t last) {
  quantize_blocks<std::int8_t>(args, first, last);
}
void quantize4(const QuantizeInt4& args, std::int64_t first, std::int64_t last) {
  quantize_blocks<std::uint8_t>(args, first, last);
}
void dequantize8(const Dequantize& args, bool stream, std::int64_t first, std::int64_t last) {
  dequantize_blocks<std::int8_t>(args, stream, first, last);
}
void dequantize4(const DequantizeInt4& args, bool stream, std::int64_t first, std::int64_t last) {
  dequantize_blocks<std::uint8_t>(args, stream, first, last);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(quantize8);
HWY_EXPORT(quantize4);
HWY_EXPORT(dequantize8);
HWY_EXPORT(dequantize4);
constexpr std::int64_t kGrain = 16;  // blocks: so that threads do not write one line of scales

template <class Args>
Cost quantize_cost(const Args& args) {
  return {static_cast<double>(args.count) + 2 * static_cast<double>(args.blocks()), operand_bytes(args), ""};
}
template <class Args>
Cost dequantize_cost(const Args& args) {
  return {static_cast<double>(args.count), operand_bytes(args), ""};
}

// Calls of_blocks(first, last, whether results outgrow the caches).
template <class Args, class Work>
void for_blocks_of(const Args& args, ThreadPool& pool, std::size_t result_bytes, const Work& of_blocks) {
  const bool stream = pool.kept<Caches>().outgrown_by(result_bytes);
  pool.for_ranges(args.blocks(), kGrain, [&](auto first, auto last) { of_blocks(first, last, stream); });
}

}  // namespace

template <int kBits>
void CodesOf<kBits>::check_shape(std::string_view kernel, std::int64_t count, std::int64_t block) {
  check_at_least(kernel, "count", count, 1);
  check_at_least(kernel, "block", block, 1);
  if (block % kInAByte == 0) return;
  throw core::usage_error(std::string(kernel) + ": block is " + std::to_string(block) + "; allowed: even numbers");
}
template struct CodesOf<8>;
template struct CodesOf<4>;

Cost cost_of(const Quantize& args) {
  return quantize_cost(args);
}
Cost cost_of(const QuantizeInt4& args) {
  return quantize_cost(args);
}
Cost cost_of(const Dequantize& args) {
  return dequantize_cost(args);
}
Cost cost_of(const DequantizeInt4& args) {
  return dequantize_cost(args);
}

void run_cpu(const Quantize& args, ThreadPool& pool) {
  for_blocks_of(args, pool, 0, [&](auto first, auto last, bool /*stream*/) {
    HWY_DYNAMIC_DISPATCH(quantize8)(args, first, last);
  });
}
void run_cpu(const QuantizeInt4& args, ThreadPool& pool) {
  for_blocks_of(args, pool, 0, [&](auto first, auto last, bool /*stream*/) {
    HWY_DYNAMIC_DISPATCH(quantize4)(args, first, last);
  });
}
void run_cpu(const Dequantize& args, ThreadPool& pool) {
  for_blocks_of(args, pool, size_bytes(args.y.dtype, args.count), [&](auto first, auto last, bool stream) {
    HWY_DYNAMIC_DISPATCH(dequantize8)(args, stream, first, last);
  });
}
void run_cpu(const DequantizeInt4& args, ThreadPool& pool) {
  for_blocks_of(args, pool, size_bytes(args.y.dtype, args.count), [&](auto first, auto last, bool stream) {
    HWY_DYNAMIC_DISPATCH(dequantize4)(args, stream, first, last);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
