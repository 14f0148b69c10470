#include "kernels/quantize/quantize.h"

#include <limits>

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
template <class T>
float largest_magnitude(const T* x, std::size_t count) {
  const DI32 d;
  const std::size_t lanes = lanes_f32();
  hn::Vec<DI32> even = hn::Zero(d);
  hn::Vec<DI32> odd = even;
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    prefetch_ahead(x + i, 2 * lanes * sizeof(T));
    const Pair p = load_pair(x + i);
    even = hn::Max(even, magnitude_bits(p.a));
    odd = hn::Max(odd, magnitude_bits(p.b));
  }
  if (i < count) {
    const Pair p = load_pair_tail(x + i, count - i);
    even = hn::Max(even, magnitude_bits(p.a));
    odd = hn::Max(odd, magnitude_bits(p.b));
  }
  return hn::GetLane(hn::BitCast(F32(), hn::MaxOfLanes(d, hn::Max(even, odd))));
}

HWY_INLINE hn::Vec<DI8> codes_of(VF32 x, VF32 inverse) {
  return hn::DemoteTo(DI8(), hn::NearestInt(hn::Mul(x, inverse)));
}

template <class T>
void encode_block(const T* x, std::int8_t* codes, float inverse, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  const VF32 factor = hn::Set(F32(), inverse);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(codes_of(load(x + i), factor), DI8(), codes + i);
  if (i == count) return;
  HWY_ALIGN std::int8_t padded[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(codes_of(load_tail(x + i, count - i), factor), DI8(), padded);
  std::memcpy(codes + i, padded, count - i);
}

template <class T>
float quantize_block(const T* x, std::int8_t* codes, std::size_t count) {
  const float largest = largest_magnitude(x, count);
  const bool finite = largest <= std::numeric_limits<float>::max();
  if (finite && largest >= kSmallestLargest) {
    encode_block(x, codes, 127 / largest, count);
    return largest / 127;
  }
  std::memset(codes, 0, count);
  return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
}

template <class T>
void dequantize_block(const std::int8_t* codes, float scale, T* y, std::size_t count) {
  const DI32 d;
  const std::size_t lanes = lanes_f32();
  const VF32 factor = hn::Set(F32(), scale);
  const auto values = [&](const std::int8_t* from) HWY_ATTR {
    return hn::Mul(hn::ConvertTo(F32(), hn::PromoteTo(d, hn::LoadU(DI8(), from))), factor);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(values(codes + i), y + i);
  if (i == count) return;
  HWY_ALIGN std::int8_t padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, codes + i, count - i);
  store_tail(values(padded), y + i, count - i);
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

void quantize(const Quantize& args, bool stream, std::int64_t first, std::int64_t last) {
  const auto block = static_cast<std::size_t>(args.block);
  const Span span = elems_of(args, first, last);
  float* const scales = args.scales.as<float>() + first;
  with_activation_type(args.x.dtype, [&](auto zero) {
    const auto* x = args.x.as<decltype(zero)>() + span.begin;
    const auto produce = [&](std::size_t begin, std::size_t count, std::int8_t* codes) {
      for_blocks(count, block, [&](std::size_t i, std::size_t elems, std::size_t k) {
        scales[begin / block + k] = quantize_block(x + begin + i, codes + i, elems);
      });
    };
    produce_elems(args.codes.as<std::int8_t>() + span.begin, span.count, stream, block, produce);
  });
}

void dequantize(const Dequantize& args, bool stream, std::int64_t first, std::int64_t last) {
  const auto block = static_cast<std::size_t>(args.block);
  const Span span = elems_of(args, first, last);
  const float* const scales = args.scales.as<float>() + first;
  const auto* codes = args.codes.as<std::int8_t>() + span.begin;
  with_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto produce = [&](std::size_t begin, std::size_t count, T* y) {
      for_blocks(count, block, [&](std::size_t i, std::size_t elems, std::size_t k) {
        dequantize_block(codes + begin + i, scales[begin / block + k], y + i, elems);
      });
    };
    produce_elems(args.y.as<T>() + span.begin, span.count, stream, block, produce);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(quantize);
HWY_EXPORT(dequantize);
constexpr std::int64_t kGrain = 16;  // blocks: so that threads do not write one line of scales
}  // namespace

void Quantize::check_shape() const {
  check_at_least(name(), "count", count, 1);
  check_at_least(name(), "block", block, 1);
}

void Dequantize::check_shape() const {
  check_at_least(name(), "count", count, 1);
  check_at_least(name(), "block", block, 1);
}

Cost cost_of(const Quantize& args) {
  return {static_cast<double>(args.count) + 2 * static_cast<double>(args.blocks()), operand_bytes(args), ""};
}

Cost cost_of(const Dequantize& args) {
  return {static_cast<double>(args.count), operand_bytes(args), ""};
}

void run_cpu(const Quantize& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.codes.dtype, args.count));
  pool.for_ranges(args.blocks(), kGrain, [&](auto first, auto last) {
    HWY_DYNAMIC_DISPATCH(quantize)(args, stream, first, last);
  });
}

void run_cpu(const Dequantize& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.count));
  pool.for_ranges(args.blocks(), kGrain, [&](auto first, auto last) {
    HWY_DYNAMIC_DISPATCH(dequantize)(args, stream, first, last);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
