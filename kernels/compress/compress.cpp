#include "kernels/compress/compress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/base/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compress/compress.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

using Byte = hn::CappedTag<float, 8>;  // as many lanes as fit in one byte of bits

HWY_INLINE std::uint8_t signs_of(const float* x, hn::Vec<Byte>& sum) {
  const Byte d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint8_t bits = 0;
  for (std::size_t i = 0; i < 8; i += lanes) {
    const auto value = hn::LoadU(d, x + i);
    std::uint8_t part[8] = {};
    hn::StoreMaskBits(
        d, hn::MaskFromVec(hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<Byte>(), value)))),
        static_cast<std::uint8_t*>(part));
    bits = static_cast<std::uint8_t>(bits | (part[0] << i));
    sum = hn::Add(sum, hn::Abs(value));
  }
  return bits;
}

// Returns the mean |x| of a block; NaN if an element is not finite. Uses two sums, for alternate bytes' elements.
float encode_block(const float* x, std::uint8_t* codes, std::size_t count) {
  const Byte d;
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    prefetch_ahead(x + i, 16 * sizeof(float));
    codes[i / 8] = signs_of(x + i, even);
    codes[i / 8 + 1] = signs_of(x + i + 8, odd);
  }
  for (; i < count; i += 8) {
    HWY_ALIGN float padded[8] = {};
    std::memcpy(padded, x + i, (count - i < 8 ? count - i : 8) * sizeof(float));
    codes[i / 8] = signs_of(static_cast<const float*>(padded), odd);
  }
  const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  const bool finite = sum <= std::numeric_limits<float>::max();
  return finite ? sum / static_cast<float>(count) : std::numeric_limits<float>::quiet_NaN();
}

HWY_INLINE void store_signed(std::uint8_t bits, hn::Vec<Byte> scale, float* y) {
  const Byte d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < 8; i += lanes) {
    std::uint8_t part[8] = {static_cast<std::uint8_t>(bits >> i)};
    if (lanes < 8) part[0] = static_cast<std::uint8_t>(part[0] & ((1U << lanes) - 1));
    const auto negative = hn::LoadMaskBits(d, static_cast<const std::uint8_t*>(part));
    hn::StoreU(hn::IfThenElse(negative, hn::Neg(scale), scale), d, y + i);
  }
}

void decode_block(const std::uint8_t* codes, float scale, float* y, std::size_t count) {
  const auto wide = hn::Set(Byte(), scale);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    prefetch_ahead(y + i, 8 * sizeof(float));
    store_signed(codes[i / 8], wide, y + i);
  }
  if (i == count) return;
  HWY_ALIGN float padded[8];
  store_signed(codes[i / 8], wide, static_cast<float*>(padded));
  std::memcpy(y + i, padded, (count - i) * sizeof(float));
}

// Encodes blocks [first, last).
void encode_blocks(const EncodeSigns& args, std::int64_t first, std::int64_t last) {
  for (std::int64_t b = first; b < last; ++b) {
    const std::int64_t begin = b * args.block;
    const std::int64_t count = HWY_MIN(args.block, args.count - begin);
    args.scales.as<float>()[b] = encode_block(args.x.as<float>() + begin, args.codes.as<std::uint8_t>() + begin / 8,
                                              static_cast<std::size_t>(count));
  }
}

void decode_blocks(const DecodeSigns& args, std::int64_t first, std::int64_t last) {
  for (std::int64_t b = first; b < last; ++b) {
    const std::int64_t begin = b * args.block;
    const std::int64_t count = HWY_MIN(args.block, args.count - begin);
    decode_block(args.codes.as<std::uint8_t>() + begin / 8, args.scales.as<float>()[b], args.y.as<float>() + begin,
                 static_cast<std::size_t>(count));
  }
}

// Appends the indices in [first, last) whose keys are at least `least`.
void collect(const float* x, std::int64_t first, std::int64_t last, std::uint32_t least,
             std::vector<std::int32_t>& found) {
  const hn::ScalableTag<std::int32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto magnitude = hn::Set(d, 0x7fffffff);
  const auto below = hn::Set(d, static_cast<std::int32_t>(least) - 1);
  const auto* const bits = reinterpret_cast<const std::int32_t*>(x);
  std::int64_t i = first;
  for (; i + lanes <= last; i += lanes) {
    prefetch_ahead(x + i, static_cast<std::size_t>(lanes) * sizeof(float));
    const auto reached = hn::Gt(hn::And(hn::LoadU(d, bits + i), magnitude), below);
    if (hn::AllFalse(d, reached)) continue;
    const std::size_t had = found.size();
    found.resize(had + static_cast<std::size_t>(lanes));
    const std::size_t more =
        hn::CompressStore(hn::Iota(d, static_cast<std::int32_t>(i)), reached, d, found.data() + had);
    found.resize(had + more);
  }
  for (; i < last; ++i) {
    if (magnitude_key(x[i]) >= least) found.push_back(static_cast<std::int32_t>(i));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(encode_blocks);
HWY_EXPORT(decode_blocks);
constexpr std::int64_t kBlockGrain = 16;  // blocks; so that threads do not share a cache line of scales

void check_signs(std::string_view name, std::int64_t count, std::int64_t block) {
  check_at_least(name, "count", count, 1);
  check_at_least(name, "block", block, 8);
  if (block % 8 != 0) {
    throw core::usage_error(std::string(name) + ": block is " + std::to_string(block) + "; allowed: multiples of 8");
  }
}
HWY_EXPORT(collect);
constexpr std::int64_t kElemGrain = 4096;  // elements
constexpr std::int64_t kSample = 16384;    // elements
constexpr double kDeviations = 4;          // standard deviations of the sample's count above the count that k needs
constexpr std::int64_t kMostCount = std::numeric_limits<std::int32_t>::max();

// The largest k: a sample gives a magnitude that somewhat more than k elements reach. One pass collects those, and the
// k-th of them is found among few. If the sample was misleading, all elements are collected.

// Estimates a key that k elements and some more reach.
std::uint32_t guess(const TopK& args) {
  const std::int64_t stride = args.count / kSample;
  if (stride < 2) return 0;
  const auto* const x = args.x.as<float>();
  std::vector<std::uint32_t> keys;
  for (std::int64_t i = 0; i < kSample; ++i) {
    // Positions within the strides vary, so that a period in x has no effect.
    keys.push_back(magnitude_key(x[i * stride + i * 7919 % stride]));
  }
  const double expected = static_cast<double>(args.k) / static_cast<double>(args.count) * static_cast<double>(kSample);
  const double place = std::ceil(expected + kDeviations * (std::sqrt(expected) + 1));
  if (place >= static_cast<double>(kSample)) return 0;
  const auto at = keys.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(keys.begin(), at, keys.end(), std::greater<>());
  return *at;
}

// Returns the indices of keys of at least `least`, ascending.
std::vector<std::int32_t> collected(const TopK& args, std::uint32_t least, ThreadPool& pool) {
  std::vector<std::vector<std::int32_t>> parts(static_cast<std::size_t>(pool.size()));
  const std::int64_t grains = (args.count + kElemGrain - 1) / kElemGrain;
  pool.for_pieces(pool.size(), [&](std::int64_t piece, int /*thread*/) {
    const std::int64_t first = grains * piece / pool.size() * kElemGrain;
    const std::int64_t last = std::min(args.count, grains * (piece + 1) / pool.size() * kElemGrain);
    HWY_DYNAMIC_DISPATCH(collect)(args.x.as<float>(), first, last, least, parts[static_cast<std::size_t>(piece)]);
  });
  std::vector<std::int32_t> all = std::move(parts.front());
  for (std::size_t part = 1; part < parts.size(); ++part) all.insert(all.end(), parts[part].begin(), parts[part].end());
  return all;
}

// Keeps the k largest, in order.
void keep_largest(const float* x, std::int64_t k, std::vector<std::int32_t>& indices) {
  if (static_cast<std::int64_t>(indices.size()) <= k) return;
  const auto larger = [x](std::int32_t a, std::int32_t b) {
    const std::uint32_t of_a = magnitude_key(x[a]);
    const std::uint32_t of_b = magnitude_key(x[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::vector<std::int32_t> by_size = indices;
  const auto last = by_size.begin() + (k - 1);
  std::nth_element(by_size.begin(), last, by_size.end(), larger);
  const std::int32_t least = *last;
  indices.erase(std::remove_if(indices.begin(), indices.end(), [&](std::int32_t i) { return larger(least, i); }),
                indices.end());
}
}  // namespace

void EncodeSigns::check_shape() const {
  check_signs(name(), count, block);
}
void DecodeSigns::check_shape() const {
  check_signs(name(), count, block);
}

Cost cost_of(const EncodeSigns& args) {
  return cost_of_operands(static_cast<double>(args.count), args);
}
Cost cost_of(const DecodeSigns& args) {
  return cost_of_operands(0, args);
}

void run_cpu(const EncodeSigns& args, ThreadPool& pool) {
  pool.for_ranges(args.blocks(), kBlockGrain, [&](auto first, auto last) {
    HWY_DYNAMIC_DISPATCH(encode_blocks)(args, first, last);
  });
}

void run_cpu(const DecodeSigns& args, ThreadPool& pool) {
  pool.for_ranges(args.blocks(), kBlockGrain, [&](auto first, auto last) {
    HWY_DYNAMIC_DISPATCH(decode_blocks)(args, first, last);
  });
}

void TopK::check_shape() const {
  check_at_least(name(), "k", k, 1);
  check_at_least(name(), "count", count, k);
  check_at_most(name(), "count", count, kMostCount, "as indices are i32");
  if (!(at >= 0)) throw core::usage_error("top_k: at is " + std::to_string(at) + "; allowed: 0 or more");
}
void ScatterAdd::check_shape() const {
  check_at_least(name(), "k", k, 1);
  check_at_least(name(), "count", count, k);
}

Cost cost_of(const TopK& args) {
  return cost_of_operands(0, args);
}
Cost cost_of(const ScatterAdd& args) {
  const auto k = static_cast<double>(args.k);
  return {k, 16 * k, "only the elements of y that change are touched"};
}

void run_cpu(const TopK& args, ThreadPool& pool) {
  const std::uint32_t floor = magnitude_key(args.at);
  const std::uint32_t least = std::max(floor, guess(args));
  std::vector<std::int32_t> indices = collected(args, least, pool);
  if (static_cast<std::int64_t>(indices.size()) < args.k && least > floor) indices = collected(args, floor, pool);
  const auto* const x = args.x.as<float>();
  keep_largest(x, args.k, indices);
  auto* const values = args.values.as<float>();
  auto* const to = args.indices.as<std::int32_t>();
  std::fill(std::copy(indices.begin(), indices.end(), to), to + args.k, -1);
  for (std::int64_t i = 0; i < args.k; ++i) values[i] = to[i] < 0 ? 0.0F : x[to[i]];
}

void run_cpu(const ScatterAdd& args, ThreadPool& pool) {
  pool.for_ranges(args.k, kElemGrain, [&](auto first, auto last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int32_t to = args.indices.as<std::int32_t>()[i];
      if (to >= 0) args.y.as<float>()[to] += args.values.as<float>()[i];
    }
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
