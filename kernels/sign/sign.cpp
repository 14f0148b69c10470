#include "kernels/sign/sign.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "kernels/base/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sign/sign.cpp"
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(encode_blocks);
HWY_EXPORT(decode_blocks);
constexpr std::int64_t kGrain = 16;  // blocks; so that threads do not share a cache line of scales

void check_signs(std::string_view name, std::int64_t count, std::int64_t block) {
  check_at_least(name, "count", count, 1);
  check_at_least(name, "block", block, 8);
  if (block % 8 != 0) {
    throw core::usage_error(std::string(name) + ": block is " + std::to_string(block) + "; allowed: multiples of 8");
  }
}

}  // namespace

void EncodeSigns::check_shape() const {
  check_signs(name(), count, block);
}
void DecodeSigns::check_shape() const {
  check_signs(name(), count, block);
}

Cost cost_of(const EncodeSigns& args) {
  return {static_cast<double>(args.count), operand_bytes(args), ""};
}
Cost cost_of(const DecodeSigns& args) {
  return {0, operand_bytes(args), ""};
}

void run_cpu(const EncodeSigns& args, ThreadPool& pool) {
  pool.for_ranges(args.blocks(), kGrain, [&](auto first, auto last) {
    HWY_DYNAMIC_DISPATCH(encode_blocks)(args, first, last);
  });
}

void run_cpu(const DecodeSigns& args, ThreadPool& pool) {
  pool.for_ranges(args.blocks(), kGrain, [&](auto first, auto last) {
    HWY_DYNAMIC_DISPATCH(decode_blocks)(args, first, last);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
