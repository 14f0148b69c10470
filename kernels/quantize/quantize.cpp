#include "kernels/quantize/quantize.h"

#include <array>
#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/quantize.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

using DI8 = hn::Rebind<std::int8_t, F32>;

// Narrows vectors of 32-bit codes to whole vectors of codes. Instructions that narrow integers work within blocks of
// 128 bits, so that each block ends up with a piece of each of kParts vectors; this brings the pieces of one vector
// together.
template <int kParts>
constexpr auto part_order() {
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<std::int32_t>());
  constexpr std::size_t kPiece = 4 / kParts;  // lanes per piece
  constexpr std::size_t kVector = kLanes / kParts;
  std::array<std::int32_t, kLanes> order{};
  for (std::size_t i = 0; i < kLanes; ++i) {
    order[i] = static_cast<std::int32_t>(i % kVector / kPiece * 4 + i / kVector * kPiece + i % kPiece);
  }
  return order;
}
template <int kParts, class V>
HWY_INLINE V in_order(V parts, const std::uint8_t (&within_block)[16]) {
  const hn::DFromV<V> d;
  const hn::Repartition<std::uint8_t, decltype(d)> d8;
  const hn::Repartition<std::int32_t, decltype(d)> d32;
  HWY_ALIGN static constexpr auto kOrder = part_order<kParts>();
  const auto sorted = hn::TableLookupBytes(hn::BitCast(d8, parts), hn::LoadDup128(d8, within_block));
  return hn::BitCast(d, hn::TableLookupLanes(hn::BitCast(d32, sorted), hn::SetTableIndices(d32, kOrder.data())));
}

// Returns codes in the lowest bits of each lane; the bits above are undefined: adding 1.5 * 2^23 to an integer leaves
// it there, in fewer instructions than a conversion that is correct for all numbers. (Adding it to the product itself
// would also round, but compilers may fuse product and sum, which rounds once where codes are rounded twice.)
template <class D>
HWY_INLINE hn::Vec<D> low_bits_of_codes(D d, VF32 x, VF32 inverse) {
  return hn::BitCast(d, hn::Add(hn::Round(hn::Mul(x, inverse)), hn::Set(F32(), 12582912.0F)));
}

// Computes 8-bit codes of as many elements as a vector has bytes.
template <class D, class T>
HWY_INLINE auto vector_of_codes(D d, const T* x, VF32 inverse) {
  const hn::Repartition<std::uint16_t, D> d16;
  HWY_ALIGN static constexpr std::uint8_t kOrder[16] = {0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15};
  const Pair first = load_pair(x);
  const Pair second = load_pair(x + pair_elems());
  const auto two_codes = [&](Pair value) HWY_ATTR {
    return hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(low_bits_of_codes(d, value.b, inverse))),
                       hn::BitCast(d16, low_bits_of_codes(d, value.a, inverse)));
  };
  const auto ab = two_codes(first);
  const auto cd = two_codes(second);
  return in_order<4>(hn::Or(hn::And(ab, hn::Set(d16, 0xff)), hn::ShiftLeft<8>(cd)), kOrder);
}
template <class D, EvenAndOdd T>
HWY_INLINE auto vector_of_codes(D d, const T* x, VF32 inverse) {
  const hn::Repartition<std::int16_t, D> d16;
  HWY_ALIGN static constexpr std::uint8_t kOrder[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
  const auto two_codes = [&](Pair value) HWY_ATTR {
    return hn::IfVecThenElse(hn::Set(d, 0xff), low_bits_of_codes(d, value.a, inverse),
                             hn::ShiftLeft<8>(low_bits_of_codes(d, value.b, inverse)));
  };
  const auto first = two_codes(load_pair(x));
  const auto second = hn::ShiftLeft<16>(two_codes(load_pair(x + pair_elems())));
  return in_order<2>(hn::BitCast(d16, hn::IfVecThenElse(hn::Set(d, 0xffff), first, second)), kOrder);
}

// Computes codes of elements_at_once() elements.
template <class Codes>
HWY_INLINE std::size_t elements_at_once() {
  return HWY_TARGET == HWY_SCALAR ? 2 : static_cast<std::size_t>(Codes::kCodesPerByte) * 2 * pair_elems();
}
template <class D, class T>
HWY_INLINE void encode_some(CodesOf<8> /*codes*/, D d, const T* x, VF32 inverse, std::int8_t* to) {
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    for (std::size_t i = 0; i < 2; ++i)
      to[i] = static_cast<std::int8_t>(hn::GetLane(hn::NearestInt(hn::Mul(load(x + i), inverse))));
  } else {
    const auto codes = vector_of_codes(d, x, inverse);
    const hn::Repartition<std::int8_t, D> d8;
    hn::StoreU(hn::BitCast(d8, codes), d8, to);
  }
}
// Packs two codes into one byte.
template <class D, class T>
HWY_INLINE void encode_some(CodesOf<4> /*codes*/, D d, const T* x, VF32 inverse, std::uint8_t* to) {
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    std::int8_t two[2];
    encode_some(CodesOf<8>(), d, x, inverse, static_cast<std::int8_t*>(two));
    *to = static_cast<std::uint8_t>((two[0] & 15) | (two[1] & 15) << 4);
  } else {
    const hn::Repartition<std::uint16_t, D> d16;
    const hn::Repartition<std::uint8_t, D> d8;
    HWY_ALIGN static constexpr std::uint8_t kOrder[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
    const auto byte_of_two = [&](auto codes) HWY_ATTR {
      const auto halves = hn::And(hn::BitCast(d16, codes), hn::Set(d16, 0x0f0f));
      return hn::Or(halves, hn::ShiftRight<4>(halves));
    };
    const auto first = byte_of_two(vector_of_codes(d, x, inverse));
    const auto second = byte_of_two(vector_of_codes(d, x + 2 * pair_elems(), inverse));
    const auto both_bytes = hn::Or(hn::And(first, hn::Set(d16, 0xff)), hn::ShiftLeft<8>(second));
    hn::StoreU(hn::BitCast(d8, in_order<2>(both_bytes, kOrder)), d8, to);
  }
}

// Prefetches x here rather than in the search for the maximum, because this loop takes longer and keeps memory busy. A
// last 4-bit code without a partner is paired with zeros.
template <class Codes, class T, class Code>
void encode_codes(Codes codes, const T* x, Code* to, float inverse, std::size_t count) {
  const std::size_t step = elements_at_once<Codes>();
  const VF32 factor = hn::Set(F32(), inverse);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(x + i, step * sizeof(T));
    prefetch_ahead(to + i / Codes::kCodesPerByte, step / Codes::kCodesPerByte);
    encode_some(codes, I32(), x + i, factor, to + i / Codes::kCodesPerByte);
  }
  if (i == count) return;
  HWY_ALIGN T padded[std::size_t{HWY_MAX_BYTES} * Codes::kCodesPerByte] = {};
  HWY_ALIGN Code last[HWY_MAX_BYTES];
  std::memcpy(padded, x + i, (count - i) * sizeof(T));
  encode_some(codes, I32(), static_cast<const T*>(padded), factor, static_cast<Code*>(last));
  std::memcpy(to + i / Codes::kCodesPerByte, last,
              static_cast<std::size_t>(Codes::bytes(static_cast<std::int64_t>(count - i))));
}

// Number of 4-bit codes that are expanded to 8-bit codes at once before they become numbers.
constexpr std::size_t kUnpackedAtOnce = 256;

HWY_INLINE void unpack_codes(const std::uint8_t* bytes, std::int8_t* codes, std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d16;
  const hn::Rebind<std::uint8_t, decltype(d16)> d8;
  const std::size_t step = hn::Lanes(d16);
  // 4 bits in two's complement: the sign bit counts -8.
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

// Encodes a block and returns its scale.
template <class Codes, class T, class Code>
float quantize_block(Codes codes, float largest, const T* x, Code* to, std::size_t count) {
  const bool finite = largest <= std::numeric_limits<float>::max();
  if (finite && largest >= Codes::kSmallestLargest) {
    encode_codes(codes, x, to, Codes::kLargest / largest, count);
    return largest / Codes::kLargest;
  }
  std::memset(to, 0, static_cast<std::size_t>(Codes::bytes(static_cast<std::int64_t>(count))));
  return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
}

// Returns codes as floats, in the order of pairs of y.
template <class T>
HWY_INLINE Pair load_codes(const std::int8_t* codes, const T* /*y*/) {
  const I32 d;
  return {hn::ConvertTo(F32(), hn::PromoteTo(d, hn::LoadU(DI8(), codes))),
          hn::ConvertTo(F32(), hn::PromoteTo(d, hn::LoadU(DI8(), codes + lanes_f32())))};
}
template <EvenAndOdd T>
HWY_INLINE Pair load_codes(const std::int8_t* codes, const T* /*y*/) {
  const hn::Rebind<std::int16_t, F32> d16;
  const auto two = hn::PromoteTo(I32(), hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(codes)));
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
  HWY_ALIGN std::int8_t codes[kUnpackedAtOnce];
  for (std::size_t i = 0; i < count; i += kUnpackedAtOnce) {
    const std::size_t some = HWY_MIN(kUnpackedAtOnce, count - i);
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

// Calls work(i, count, block) for each block of `count` elements; ranges begin at a block.
template <class Work>
HWY_INLINE void for_blocks(std::size_t count, std::size_t block, const Work& work) {
  for (std::size_t i = 0; i < count; i += block) work(i, count - i < block ? count - i : block, i / block);
}

// The maxima of a few blocks are found before the first block is encoded, so that nothing waits for a maximum across
// lanes and the division by it. Codes are written with ordinary stores, because more is read than written: see run_cpu
// of a Cast.
template <class Code, class Args>
void quantize_blocks(const Args& args, std::int64_t first, std::int64_t last) {
  using Codes = typename Args::Codes;
  constexpr std::size_t kGroupBytes = 4096;  // bytes of x that encode_codes has prefetched
  constexpr std::size_t kMostBlocks = 16;
  const auto block = static_cast<std::size_t>(args.block);
  const Span span = elems_of(args, first, last);
  float* const scales = args.scales.template as<float>() + first;
  with_activation_type(args.x.dtype, [&](auto zero) {
    const auto* x = args.x.template as<decltype(zero)>() + span.begin;
    Code* const codes = args.codes.template as<Code>() + Codes::bytes(span.begin);
    const std::size_t group = HWY_MAX(std::size_t{1}, HWY_MIN(kMostBlocks, kGroupBytes / (block * sizeof zero)));
    std::array<float, kMostBlocks> largest;
    for_blocks(span.count, group * block, [&](std::size_t i, std::size_t elems, std::size_t k) {
      for_blocks(elems, block, [&](std::size_t j, std::size_t count, std::size_t n) {
        largest[n] = largest_magnitude(I32(), x + i + j, count);
      });
      for_blocks(elems, block, [&](std::size_t j, std::size_t count, std::size_t n) {
        Code* const to = codes + (i + j) / Codes::kCodesPerByte;
        scales[k * group + n] = quantize_block(Codes(), largest[n], x + i + j, to, count);
      });
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
        decode_codes(Codes(), codes + (begin + i) / Codes::kCodesPerByte, scales[begin / block + k], y + i, elems);
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
constexpr std::int64_t kGrain = 16;  // blocks; so that threads do not share a cache line of scales

template <class Args>
Cost quantize_cost(const Args& args) {
  return cost_of_operands(static_cast<double>(args.count) + 2 * static_cast<double>(args.blocks()), args);
}
template <class Args>
Cost dequantize_cost(const Args& args) {
  return cost_of_operands(static_cast<double>(args.count), args);
}

// Calls of_blocks(first, last, whether results exceed all caches): received numbers are read soon.
template <class Args, class Work>
void for_blocks_of(const Args& args, ThreadPool& pool, std::size_t result_bytes, const Work& of_blocks) {
  const bool stream = pool.kept<Caches>().all_outgrown_by(result_bytes);
  pool.for_ranges(args.blocks(), kGrain, [&](auto first, auto last) { of_blocks(first, last, stream); });
}

}  // namespace

template <int kBits>
void CodesOf<kBits>::check_shape(std::string_view kernel, std::int64_t count, std::int64_t block) {
  check_sizes(kernel, {{"count", count}, {"block", block}});
  if (block % kCodesPerByte == 0) return;
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
