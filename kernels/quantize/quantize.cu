#include <algorithm>

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

// Calls whole(i) for this member's packs of a block, and one(i) for elements after the last pack.
template <class Team, int kItems, class Whole, class One>
__device__ __forceinline__ void for_members_packs(std::int64_t length, Whole&& whole, One&& one) {
  const std::int64_t end = length / kItems * kItems;
  const std::int64_t stride = std::int64_t{Team::members()} * kItems;
  for (std::int64_t i = std::int64_t{Team::member()} * kItems; i < end; i += stride) whole(i);
  if (kItems > 1 && end + Team::member() < length) one(end + Team::member());
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

template <class T, int kItems>
__device__ __forceinline__ void store_codes(const Pack<T, kItems>& in, float inverse, std::int8_t* to) {
  Pack<std::int8_t, kItems> codes;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    codes.items[i] = static_cast<std::int8_t>(code_of(in[i], inverse));
  }
  codes.store(to);
}

// The second pass reads what the first has left in the L1 cache.
template <class Team, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) quantize_kernel(Quantizing<T, std::int8_t> args) {
  for_blocks<Team>(args.count, args.block, args.blocks, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const T* const x = args.x + begin;
    std::int8_t* const codes = args.codes + begin;
    MaximumBits mine;
    for_members_packs<Team, kItems>(
        length, [&](std::int64_t i) { mine.value = largest_bits(Pack<T, kItems>::load(x + i), mine.value); },
        [&](std::int64_t i) { mine.value = largest_bits(Pack<T, 1>::load(x + i), mine.value); });
    const BlockScale scale = scale_of<CodesOf<8>>(Team::reduce(mine).value);
    if (Team::member() == 0) args.scales[b] = scale.scale;
    for_members_packs<Team, kItems>(
        length, [&](std::int64_t i) { store_codes(Pack<T, kItems>::load(x + i), scale.inverse, codes + i); },
        [&](std::int64_t i) { store_codes(Pack<T, 1>::load(x + i), scale.inverse, codes + i); });
  });
}

template <class T, int kItems>
__device__ __forceinline__ void store_products(const Pack<std::int8_t, kItems>& codes, float scale, T* to) {
  Pack<T, kItems> out;
#pragma unroll
  for (int i = 0; i < kItems; ++i) out.set(i, static_cast<float>(codes.items[i]) * scale);
  out.store(to);
}

template <class Team, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) dequantize_kernel(Dequantizing<T, std::int8_t> args) {
  for_blocks<Team>(args.count, args.block, args.blocks, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const std::int8_t* const codes = args.codes + begin;
    T* const y = args.y + begin;
    const float scale = args.scales[b];
    for_members_packs<Team, kItems>(
        length, [&](std::int64_t i) { store_products(Pack<std::int8_t, kItems>::load(codes + i), scale, y + i); },
        [&](std::int64_t i) { store_products(Pack<std::int8_t, 1>::load(codes + i), scale, y + i); });
  });
}

// For 4 bits: a thread writes one byte, two elements.
template <class Team, class T>
__global__ void __launch_bounds__(kBlockThreads) quantize_int4_kernel(Quantizing<T, std::uint8_t> args) {
  for_blocks<Team>(args.count, args.block, args.blocks, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const T* const x = args.x + begin;
    MaximumBits mine;
    for (std::int64_t i = Team::member(); i < length; i += Team::members()) {
      mine.value = largest_bits(Pack<T, 1>::load(x + i), mine.value);
    }
    const BlockScale scale = scale_of<CodesOf<4>>(Team::reduce(mine).value);
    if (Team::member() == 0) args.scales[b] = scale.scale;
    for (std::int64_t i = 2 * Team::member(); i < length; i += 2 * Team::members()) {
      const int low = code_of(to_f32(x[i]), scale.inverse);
      const int high = i + 1 < length ? code_of(to_f32(x[i + 1]), scale.inverse) : 0;
      args.codes[(begin + i) / 2] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
    }
  });
}

template <class Team, class T>
__global__ void __launch_bounds__(kBlockThreads) dequantize_int4_kernel(Dequantizing<T, std::uint8_t> args) {
  for_blocks<Team>(args.count, args.block, args.blocks, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const float scale = args.scales[b];
    for (std::int64_t i = Team::member(); i < length; i += Team::members()) {
      const int bits = args.codes[(begin + i) / 2] >> (i % 2 * 4) & 15;
      args.y[begin + i] = from_f32<T>(static_cast<float>((bits ^ 8) - 8) * scale);
    }
  });
}

LaunchShape launch_shape(std::int64_t block, std::int64_t blocks, const CudaContext& cuda) {
  const std::int64_t at_once = block <= kWarpBlock ? WarpTeam::kInABlock : BlockTeam::kInABlock;
  return {.blocks = grid_blocks((blocks + at_once - 1) / at_once, cuda.num_multiprocessors())};
}

}  // namespace

void run_cuda(const Quantize& args, CudaContext& cuda) {
  with_packs(args.x.dtype, args.block, {args.x.data, args.codes.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const Quantizing<T, std::int8_t> quantizing{
        args.count, args.block, args.blocks(), args.x.as<T>(), args.codes.as<std::int8_t>(), args.scales.as<float>()};
    auto* const kernel =
        args.block <= kWarpBlock ? quantize_kernel<WarpTeam, T, kItems> : quantize_kernel<BlockTeam, T, kItems>;
    launch(cuda, "quantize_int8", launch_shape(args.block, args.blocks(), cuda), kernel, quantizing);
  });
}

void run_cuda(const Dequantize& args, CudaContext& cuda) {
  with_packs(args.y.dtype, args.block, {args.codes.data, args.y.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const Dequantizing<T, std::int8_t> dequantizing{
        args.count, args.block, args.blocks(), args.codes.as<std::int8_t>(), args.scales.as<float>(), args.y.as<T>()};
    auto* const kernel =
        args.block <= kWarpBlock ? dequantize_kernel<WarpTeam, T, kItems> : dequantize_kernel<BlockTeam, T, kItems>;
    launch(cuda, "dequantize_int8", launch_shape(args.block, args.blocks(), cuda), kernel, dequantizing);
  });
}

void run_cuda(const QuantizeInt4& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Quantizing<T, std::uint8_t> quantizing{
        args.count, args.block, args.blocks(), args.x.as<T>(), args.codes.as<std::uint8_t>(), args.scales.as<float>()};
    auto* const kernel =
        args.block <= kWarpBlock ? quantize_int4_kernel<WarpTeam, T> : quantize_int4_kernel<BlockTeam, T>;
    launch(cuda, "quantize_int4", launch_shape(args.block, args.blocks(), cuda), kernel, quantizing);
  });
}

void run_cuda(const DequantizeInt4& args, CudaContext& cuda) {
  with_cuda_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Dequantizing<T, std::uint8_t> dequantizing{
        args.count, args.block, args.blocks(), args.codes.as<std::uint8_t>(), args.scales.as<float>(), args.y.as<T>()};
    auto* const kernel =
        args.block <= kWarpBlock ? dequantize_int4_kernel<WarpTeam, T> : dequantize_int4_kernel<BlockTeam, T>;
    launch(cuda, "dequantize_int4", launch_shape(args.block, args.blocks(), cuda), kernel, dequantizing);
  });
}

}  // namespace lockstep::kernels
