// Sums and maxima over the threads of a warp or a block. Every thread gets the result, with the same bits each time:
// the order of additions depends only on the threads' numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_geometry.h"
#include "kernels/base/cuda_instructions.cuh"

namespace lockstep::kernels {

inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr int kMostWarps = 32;  // most warps in a block
inline constexpr float kLog2E = 1.4426950408889634F;

__device__ __forceinline__ int lane_index() {
  return static_cast<int>(threadIdx.x) % kWarpLanes;
}
__device__ __forceinline__ int warp_index() {
  return static_cast<int>(threadIdx.x) / kWarpLanes;
}

__device__ __forceinline__ float not_a_number() {
  return __int_as_float(0x7fffffff);
}

// Definition of a reduction: a value, the identity, and how two values are combined. combine(a, b) must equal
// combine(b, a) bit for bit, because partners in a butterfly combine in either order.
struct Sum {
  float value = 0;
  __device__ __forceinline__ static Sum combine(Sum a, Sum b) { return {a.value + b.value}; }
  __device__ __forceinline__ Sum partner(int mask) const { return {__shfl_xor_sync(kAllLanes, value, mask)}; }
};

struct TwoSums {
  float a = 0;
  float b = 0;
  __device__ __forceinline__ static TwoSums combine(TwoSums x, TwoSums y) { return {x.a + y.a, x.b + y.b}; }
  __device__ __forceinline__ TwoSums partner(int mask) const {
    return {__shfl_xor_sync(kAllLanes, a, mask), __shfl_xor_sync(kAllLanes, b, mask)};
  }
};

struct WideSum {
  double value = 0;
  __device__ __forceinline__ static WideSum combine(WideSum a, WideSum b) { return {a.value + b.value}; }
  __device__ __forceinline__ WideSum partner(int mask) const { return {__shfl_xor_sync(kAllLanes, value, mask)}; }
};

struct Maximum {  // for numbers that are not NaN
  float value = -INFINITY;
  __device__ __forceinline__ static Maximum combine(Maximum a, Maximum b) { return {fmaxf(a.value, b.value)}; }
  __device__ __forceinline__ Maximum partner(int mask) const { return {__shfl_xor_sync(kAllLanes, value, mask)}; }
};

// The maximum of numbers that arrive a few at a time, and the sum of their exponentials (Milakov, Gimelshein 2018,
// arXiv:1805.02867, algorithm 3). Each exponential is power_of(x, shift_of(maximum)): exp(x - maximum) except for a
// factor near 1 that all powers of a row share, because the shift is rounded. NaN makes the sum NaN, but not the
// maximum. Without numbers, or with -infinity only, the sum is 0. Numbers must be less than 2^127.
struct ExpSum {
  float maximum = -INFINITY;
  float sum = 0;

  // x in powers of two, rounded separately.
  __device__ __forceinline__ static float scaled(float x) { return __fmul_rn(kLog2E, x); }
  // Returns 0 while the maximum is -infinity, because -infinity minus itself is NaN.
  __device__ __forceinline__ static float shift_of(float maximum) {
    return maximum == -INFINITY ? 0.0F : scaled(maximum);
  }
  // One multiply-add and one power. The product is not rounded separately, so that an error of the shift is a common
  // factor.
  __device__ __forceinline__ static float power_of(float x, float shift) {
    return exp2_approx(fmaf(kLog2E, x, -shift));
  }
  // Returns the sum of exp(x - maximum), without that factor.
  __device__ __forceinline__ float sum_of_exps() const {
    return sum == 0 ? 0.0F : sum / power_of(maximum, shift_of(maximum));
  }

  template <class T, int kItems>
  __device__ __forceinline__ void add(const Pack<T, kItems>& x) {
    add_some(x, kItems);
  }
  // Adds the first `count` elements of a pack.
  template <class T, int kItems>
  __device__ __forceinline__ void add_some(const Pack<T, kItems>& x, int count) {
    float top = maximum;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (i < count) top = fmaxf(top, x[i]);
    }
    const float shift = shift_of(top);
    float added = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (i < count) added += power_of(x[i], shift);
    }
    sum = sum * exp2_approx(scaled(maximum) - shift) + added;
    maximum = top;
  }
  // Products and sum are rounded one by one: a fused multiply-add would treat a and b differently.
  __device__ __forceinline__ static ExpSum combine(ExpSum a, ExpSum b) {
    const float top = fmaxf(a.maximum, b.maximum);
    const float shift = shift_of(top);
    const float of_a = __fmul_rn(a.sum, exp2_approx(scaled(a.maximum) - shift));
    const float of_b = __fmul_rn(b.sum, exp2_approx(scaled(b.maximum) - shift));
    return {top, __fadd_rn(of_a, of_b)};
  }
  __device__ __forceinline__ ExpSum partner(int mask) const {
    return {__shfl_xor_sync(kAllLanes, maximum, mask), __shfl_xor_sync(kAllLanes, sum, mask)};
  }
};

// All lanes must call it.
template <class V>
__device__ __forceinline__ V warp_reduce(V value) {
#pragma unroll
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) value = V::combine(value, value.partner(mask));
  return value;
}

// All threads of the block must call it, and the block must consist of whole warps; the threads wait for each other.
// Their earlier writes to shared or global memory are visible to all threads afterwards.
template <class V>
__device__ __forceinline__ V block_reduce(V value) {
  alignas(16) __shared__ unsigned char
      memory[kMostWarps * sizeof(V)];  // V has initial values, which shared memory must not have
  V* const of_warps = reinterpret_cast<V*>(memory);
  value = warp_reduce(value);
  __syncthreads();  // the previous call may still be reading
  if (lane_index() == 0) of_warps[warp_index()] = value;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarpLanes;
  return warp_reduce(lane_index() < warps ? of_warps[lane_index()] : V{});
}

}  // namespace lockstep::kernels
