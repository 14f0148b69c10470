#include <algorithm>
#include <type_traits>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/quantize/quantize.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kWarpBlock =
    4096;  // elements of a quantised block up to which one warp processes it; larger ones need a thread block

template <class T, class Code>
struct Quantizing {
  std::int64_t count;
  std::int64_t block;
  std::int64_t blocks;
  const T* x;
  Code* codes;
  float* scales;
};

template <class T, class Code>
struct Dequantizing {
  std::int64_t count;
  std::int64_t block;
  std::int64_t blocks;
  const Code* codes;
  const float* scales;
  T* y;
};

// Magnitudes as bits, which order like the magnitudes, infinity and NaN above all numbers.
struct MaximumBits {
  std::uint32_t value = 0;
  __device__ __forceinline__ static MaximumBits combine(MaximumBits a, MaximumBits b) {
    return {max(a.value, b.value)};
  }
  __device__ __forceinline__ MaximumBits partner(int mask) const { return {__shfl_xor_sync(kAllLanes, value, mask)}; }
};

// The threads that share a block of elements.
struct WarpTeam {
  static constexpr int kInABlock = kWarpsPerBlock;
  __device__ __forceinline__ static int member() { return lane_index(); }
  __device__ __forceinline__ static int members() { return kWarpLanes; }
  __device__ __forceinline__ static int team() { return warp_index(); }
  template <class V>
  __device__ __forceinline__ static V reduce(V value) {
    return warp_reduce(value);
  }
};
struct BlockTeam {
  static constexpr int kInABlock = 1;
  __device__ __forceinline__ static int member() { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ static int members() { return kBlockThreads; }
  __device__ __forceinline__ static int team() { return 0; }
  template <class V>
  __device__ __forceinline__ static V reduce(V value) {
    return block_reduce(value);
  }
};

// Calls visit(begin, length) in all threads of this thread's team for each of the team's quantised blocks.
template <class Team, class Visit>
__device__ __forceinline__ void for_blocks(std::int64_t count, std::int64_t block, std::int64_t blocks, Visit&& visit) {
  const std::int64_t stride = std::int64_t{gridDim.x} * Team::kInABlock;
  for (std::int64_t b = std::int64_t{blockIdx.x} * Team::kInABlock + Team::team(); b < blocks; b += stride) {
    visit(b, b * block, min(block, count - b * block));
  }
}

// Calls whole(i) for this member's packs of a block, and some(i) for the elements after the last pack, or for all if
// kItems is 1. These are taken in units: elements i to i + kUnit - 1, whose codes share a byte.
template <class Team, int kItems, int kUnit, class Whole, class Some>
__device__ __forceinline__ void for_members_packs(std::int64_t length, Whole&& whole, Some&& some) {
  const std::int64_t end = kItems > 1 ? length / kItems * kItems : 0;
  const std::int64_t stride = std::int64_t{Team::members()} * kItems;
  for (std::int64_t i = std::int64_t{Team::member()} * kItems; i < end; i += stride) whole(i);
  const std::int64_t step = std::int64_t{Team::members()} * kUnit;
  for (std::int64_t i = end + std::int64_t{Team::member()} * kUnit; i < length; i += step) some(i);
}

// Loads elements i to i + kUnit - 1, with zeros past the block's end.
template <class T, int kUnit>
__device__ __forceinline__ Pack<T, kUnit> load_unit(const T* x, std::int64_t i, std::int64_t length) {
  Pack<T, kUnit> unit;
#pragma unroll
  for (int k = 0; k < kUnit; ++k) unit.items[k] = i + k < length ? x[i + k] : from_f32<T>(0);
  return unit;
}
template <class T, int kUnit>
__device__ __forceinline__ void store_unit(const Pack<T, kUnit>& unit, T* y, std::int64_t i, std::int64_t length) {
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    if (i + k < length) y[i + k] = unit.items[k];
  }
}

template <class T, int kItems>
__device__ __forceinline__ std::uint32_t largest_bits(const Pack<T, kItems>& pack, std::uint32_t largest) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) largest = max(largest, __float_as_uint(pack[i]) & 0x7fffffffU);
  return largest;
}

// 127 / largest and largest / 127, or their substitutes; for 4 bits with 7.
struct BlockScale {
  float scale;
  float inverse;  // 0: all codes are 0
};
template <class Codes>
__device__ __forceinline__ BlockScale scale_of(std::uint32_t largest_bits) {
  const float largest = __uint_as_float(largest_bits);
  if (!isfinite(largest)) return {not_a_number(), 0};
  if (largest < Codes::kSmallestLargest) return {0, 0};
  return {__fdiv_rn(largest, Codes::kLargest), __fdiv_rn(Codes::kLargest, largest)};
}

// Infinity and NaN have code 0, because their block has no inverse.
__device__ __forceinline__ int code_of(float x, float inverse) {
  return inverse == 0 ? 0 : __float2int_rn(__fmul_rn(x, inverse));
}

// The codes of a pack, and the numbers that they stand for: codes of 8 bits are a byte each, two of 4 bits share one.
template <class T, int kItems>
__device__ __forceinline__ void store_codes(const Pack<T, kItems>& in, float inverse, std::int8_t* to) {
  Pack<std::int8_t, kItems> codes;
#pragma unroll
  for (int i = 0; i < kItems; ++i) codes.items[i] = static_cast<std::int8_t>(code_of(in[i], inverse));
  codes.store(to);
}
template <class T, int kItems>
__device__ __forceinline__ void store_codes(const Pack<T, kItems>& in, float inverse, std::uint8_t* to) {
  Pack<std::uint8_t, kItems / 2> codes;
#pragma unroll
  for (int i = 0; i < kItems / 2; ++i) {
    const int low = code_of(in[2 * i], inverse) & 15;
    codes.items[i] = static_cast<std::uint8_t>(low | (code_of(in[2 * i + 1], inverse) & 15) << 4);
  }
  codes.store(to);
}
template <class T, int kItems>
__device__ __forceinline__ Pack<T, kItems> products(const std::int8_t* from, float scale) {
  const auto codes = Pack<std::int8_t, kItems>::load(from);
  Pack<T, kItems> out;
#pragma unroll
  for (int i = 0; i < kItems; ++i) out.set(i, static_cast<float>(codes.items[i]) * scale);
  return out;
}
template <class T, int kItems>
__device__ __forceinline__ Pack<T, kItems> products(const std::uint8_t* from, float scale) {
  const auto codes = Pack<std::uint8_t, kItems / 2>::load(from);
  Pack<T, kItems> out;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int bits = codes.items[i / 2] >> (i % 2 * 4) & 15;
    out.set(i, static_cast<float>((bits ^ 8) - 8) * scale);
  }
  return out;
}

template <int kBits>
using CodeByte = std::conditional_t<kBits == 8, std::int8_t, std::uint8_t>;

// The second pass reads what the first has left in the L1 cache.
template <int kBits, class Team, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) quantize_kernel(Quantizing<T, CodeByte<kBits>> args) {
  constexpr int kUnit = static_cast<int>(CodesOf<kBits>::kCodesPerByte);
  constexpr int kPack = kItems > 1 ? kItems : kUnit;  // if kItems is 1, no packs are taken
  for_blocks<Team>(args.count, args.block, args.blocks, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const T* const x = args.x + begin;
    CodeByte<kBits>* const codes = args.codes + begin / kUnit;
    MaximumBits mine;
    for_members_packs<Team, kItems, kUnit>(
        length, [&](std::int64_t i) { mine.value = largest_bits(Pack<T, kPack>::load(x + i), mine.value); },
        [&](std::int64_t i) { mine.value = largest_bits(load_unit<T, kUnit>(x, i, length), mine.value); });
    const BlockScale scale = scale_of<CodesOf<kBits>>(Team::reduce(mine).value);
    if (Team::member() == 0) args.scales[b] = scale.scale;
    for_members_packs<Team, kItems, kUnit>(
        length, [&](std::int64_t i) { store_codes(Pack<T, kPack>::load(x + i), scale.inverse, codes + i / kUnit); },
        [&](std::int64_t i) { store_codes(load_unit<T, kUnit>(x, i, length), scale.inverse, codes + i / kUnit); });
  });
}

template <int kBits, class Team, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) dequantize_kernel(Dequantizing<T, CodeByte<kBits>> args) {
  constexpr int kUnit = static_cast<int>(CodesOf<kBits>::kCodesPerByte);
  constexpr int kPack = kItems > 1 ? kItems : kUnit;  // if kItems is 1, no packs are taken
  for_blocks<Team>(args.count, args.block, args.blocks, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const CodeByte<kBits>* const codes = args.codes + begin / kUnit;
    T* const y = args.y + begin;
    const float scale = args.scales[b];
    for_members_packs<Team, kItems, kUnit>(
        length, [&](std::int64_t i) { products<T, kPack>(codes + i / kUnit, scale).store(y + i); },
        [&](std::int64_t i) { store_unit(products<T, kUnit>(codes + i / kUnit, scale), y, i, length); });
  });
}

LaunchShape launch_shape(std::int64_t block, std::int64_t blocks, const CudaContext& cuda) {
  const std::int64_t at_once = block <= kWarpBlock ? WarpTeam::kInABlock : BlockTeam::kInABlock;
  return {.blocks = grid_blocks((blocks + at_once - 1) / at_once, cuda.num_multiprocessors())};
}

template <int kBits>
void quantize(const QuantizeTo<kBits>& args, CudaContext& cuda) {
  with_packs(args.x.dtype, args.block, {args.x.data, args.codes.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    using Code = CodeByte<kBits>;
    constexpr int kItems = decltype(items)::value;
    const Quantizing<T, Code> quantizing{args.count,
                                         args.block,
                                         args.blocks(),
                                         args.x.template as<T>(),
                                         args.codes.template as<Code>(),
                                         args.scales.template as<float>()};
    auto* const kernel = args.block <= kWarpBlock ? quantize_kernel<kBits, WarpTeam, T, kItems>
                                                  : quantize_kernel<kBits, BlockTeam, T, kItems>;
    launch(cuda, args.name().data(), launch_shape(args.block, args.blocks(), cuda), kernel, quantizing);
  });
}

template <int kBits>
void dequantize(const DequantizeFrom<kBits>& args, CudaContext& cuda) {
  with_packs(args.y.dtype, args.block, {args.codes.data, args.y.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    using Code = CodeByte<kBits>;
    constexpr int kItems = decltype(items)::value;
    const Dequantizing<T, Code> dequantizing{args.count,
                                             args.block,
                                             args.blocks(),
                                             args.codes.template as<Code>(),
                                             args.scales.template as<float>(),
                                             args.y.template as<T>()};
    auto* const kernel = args.block <= kWarpBlock ? dequantize_kernel<kBits, WarpTeam, T, kItems>
                                                  : dequantize_kernel<kBits, BlockTeam, T, kItems>;
    launch(cuda, args.name().data(), launch_shape(args.block, args.blocks(), cuda), kernel, dequantizing);
  });
}

}  // namespace

void run_cuda(const Quantize& args, CudaContext& cuda) {
  quantize(args, cuda);
}

void run_cuda(const Dequantize& args, CudaContext& cuda) {
  dequantize(args, cuda);
}

void run_cuda(const QuantizeInt4& args, CudaContext& cuda) {
  quantize(args, cuda);
}

void run_cuda(const DequantizeInt4& args, CudaContext& cuda) {
  dequantize(args, cuda);
}

}  // namespace lockstep::kernels
