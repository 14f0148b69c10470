// Elements in CUDA kernels: their types, packs of adjacent elements that are loaded and stored at once, and elements of
// every dtype combined as kernels/reduce/reduction.h defines.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

// Calls visit(T{}) with the device's type of an activation's element.
template <class Visit>
void with_cuda_activation_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::f32:
      return visit(float{});
    case core::DType::bf16:
      return visit(__nv_bfloat16{});
    case core::DType::f16:
      return visit(__half{});
    default:
      LOCKSTEP_CHECK(false, "not an activation's dtype");
  }
}

__device__ __forceinline__ float to_f32(float x) {
  return x;
}
__device__ __forceinline__ float to_f32(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_f32(__half x) {
  return __half2float(x);
}

// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_f32(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return T::from_f32(x);
  }
}

// The vector type that one access of this size moves.
template <int kBytes>
struct AccessOf;
template <>
struct AccessOf<1> {
  using Type = std::uint8_t;
};
template <>
struct AccessOf<2> {
  using Type = std::uint16_t;
};
template <>
struct AccessOf<4> {
  using Type = std::uint32_t;
};
template <>
struct AccessOf<8> {
  using Type = uint2;
};
template <>
struct AccessOf<16> {
  using Type = uint4;
};

// kItems adjacent elements of an array, in their memory layout. Their address must be a multiple of their size, or of
// 16 bytes if they are larger.
template <class T, int kItems>
struct Pack {
  static constexpr int kBytes = kItems * static_cast<int>(sizeof(T));
  static constexpr int kBytesAtOnce = kBytes < 16 ? kBytes : 16;
  static constexpr int kAccesses = kBytes / kBytesAtOnce;
  using Access = typename AccessOf<kBytesAtOnce>::Type;

  alignas(kBytesAtOnce) T items[kItems];

  __device__ __forceinline__ static Pack load(const T* from) {
    Pack pack;
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      reinterpret_cast<Access*>(pack.items)[k] = reinterpret_cast<const Access*>(from)[k];
    }
    return pack;
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      reinterpret_cast<Access*>(to)[k] = reinterpret_cast<const Access*>(items)[k];
    }
  }
  // The same for data that is read or written once and is too large to be found in a cache the next time: it is evicted
  // first (ld.global.cs, st.global.cs).
  __device__ __forceinline__ static Pack load_once(const T* from) {
    Pack pack;
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      reinterpret_cast<Access*>(pack.items)[k] = __ldcs(reinterpret_cast<const Access*>(from) + k);
    }
    return pack;
  }
  __device__ __forceinline__ void store_once(T* to) const {
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      __stcs(reinterpret_cast<Access*>(to) + k, reinterpret_cast<const Access*>(items)[k]);
    }
  }
  // Widens two adjacent bf16 with one instruction each, because a bf16 is the upper half of its f32; for a single bf16
  // the compiler needs two instructions.
  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (std::is_same_v<T, __nv_bfloat16> && kItems % 2 == 0) {
      const std::uint32_t pair = reinterpret_cast<const std::uint32_t*>(items)[i / 2];
      return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
    } else {
      return to_f32(items[i]);
    }
  }
  __device__ __forceinline__ void set(int i, float value) {
    items[i] = from_f32<T>(value);
  }
  // Widens two adjacent 8-bit floats with one instruction and one each.
  __device__ __forceinline__ void widen(float (&values)[kItems]) const {
    if constexpr (sizeof(T) == 1 && kItems % 2 == 0) {
#pragma unroll
      for (int i = 0; i < kItems; i += 2) {
        const __half2_raw two = T::two_to_half(reinterpret_cast<const std::uint16_t*>(items)[i / 2]);
        values[i] = __half2float(__half(__half_raw{two.x}));
        values[i + 1] = __half2float(__half(__half_raw{two.y}));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kItems; ++i) values[i] = (*this)[i];
    }
  }
};

// Calls use(first, load(first)) for first = begin, begin + stride, ... below end. A few loads are issued before the
// first use: bytes in flight hide the latency of memory. The last few are checked one by one, all others together.
template <int kAhead, class Index, class Load, class Use>
__device__ __forceinline__ void for_packs(Index begin, std::type_identity_t<Index> stride,
                                          std::type_identity_t<Index> end, Load&& load, Use&& use) {
  decltype(load(begin)) loaded[kAhead];
  for (; begin + (kAhead - 1) * stride < end; begin += kAhead * stride) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) loaded[k] = load(begin + k * stride);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) use(begin + k * stride, loaded[k]);
  }
#pragma unroll
  for (int k = 0; k < kAhead - 1; ++k) {
    if (begin + k * stride < end) loaded[k] = load(begin + k * stride);
  }
#pragma unroll
  for (int k = 0; k < kAhead - 1; ++k) {
    if (begin + k * stride < end) use(begin + k * stride, loaded[k]);
  }
}

// Calls visit(std::integral_constant<int, items>) for the number of elements that a thread takes at once: as many of
// the widest type as a 16-byte access holds, or 1. See items_an_access().
template <int kWide, class Visit>
void with_items(int items, Visit&& visit) {
  if (items == 1) return visit(std::integral_constant<int, 1>{});
  LOCKSTEP_CHECK(items == kWide, "no kernel for so many elements an access");
  return visit(std::integral_constant<int, kWide>{});
}

// Calls visit(T{}, std::integral_constant<int, items>) with the device's type of an activation's element, and the
// number of elements that a thread takes at once of operands with this many columns (items_an_access()).
template <class Visit>
void with_packs(core::DType dtype, std::int64_t columns, std::initializer_list<const void*> operands, Visit&& visit) {
  with_cuda_activation_type(dtype, [&](auto zero) {
    constexpr int kWide = static_cast<int>(kAccessBytes / sizeof zero);
    with_items<kWide>(items_an_access(sizeof zero, columns, operands), [&](auto items) { visit(zero, items); });
  });
}

// 8-bit floats in CUDA kernels, with the bits of core/dtype.h.

struct CudaE4M3 {
  std::uint8_t bits;

  // The hardware's conversion saturates at 448, but overflow must become NaN. 464 is halfway to 480, the next number
  // that the format would have; the tie rounds to 448, which is even.
  __device__ __forceinline__ static CudaE4M3 from_f32(float x) {
    const std::uint8_t sign = signbit(x) ? 0x80 : 0;
    if (!(fabsf(x) <= 464.0F)) return {static_cast<std::uint8_t>(sign | 0x7f)};
    return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
  }
  // Codes of two numbers, the first in the low byte, by one instruction. What is too large, infinity too, becomes the
  // largest number.
  __device__ __forceinline__ static std::uint16_t two_saturated(float first, float second) {
    return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, __NV_E4M3);
  }
  __device__ __forceinline__ static __half2_raw two_to_half(std::uint16_t codes) {
    return __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  }
};

struct CudaE5M2 {
  std::uint8_t bits;

  // The largest number is 57344; 61440, halfway to 65536, is a tie and rounds to even: infinity.
  __device__ __forceinline__ static CudaE5M2 from_f32(float x) {
    const std::uint8_t sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) return {static_cast<std::uint8_t>(sign | 0x7e)};
    if (fabsf(x) >= 61440.0F) return {static_cast<std::uint8_t>(sign | 0x7c)};
    return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2)};
  }
  __device__ __forceinline__ static std::uint16_t two_saturated(float first, float second) {
    return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, __NV_E5M2);
  }
  __device__ __forceinline__ static __half2_raw two_to_half(std::uint16_t codes) {
    return __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E5M2);
  }
};

// Every 8-bit float is exact in half.
__device__ __forceinline__ float to_f32(CudaE4M3 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
}
__device__ __forceinline__ float to_f32(CudaE5M2 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E5M2)));
}

// The operations of kernels/reduce/reduction.h, for elements of every dtype.

// The type in which sums are computed.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
__device__ __forceinline__ Wide<T> widened(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return to_f32(x);
  }
}

template <class T>
__device__ __forceinline__ T narrowed(Wide<T> x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return from_f32<T>(x);
  }
}

// Integers wrap around, computed in their unsigned type.
template <core::ReduceOp kOp, class W>
__device__ __forceinline__ W combined(W a, W b) {
  if constexpr (kOp == core::ReduceOp::max) {
    return a < b ? b : a;
  } else if constexpr (kOp == core::ReduceOp::min) {
    return b < a ? b : a;
  } else if constexpr (std::is_integral_v<W>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<W>(kOp == core::ReduceOp::prod ? x * y : x + y);
  } else {
    return kOp == core::ReduceOp::prod ? a * b : a + b;
  }
}

template <class W>
__device__ __forceinline__ W averaged(W sum, std::int64_t over) {
  if constexpr (std::is_unsigned_v<W>) {
    return static_cast<W>(std::uint64_t{sum} / static_cast<std::uint64_t>(over));
  } else {
    return static_cast<W>(sum / static_cast<std::conditional_t<std::is_integral_v<W>, std::int64_t, W>>(over));
  }
}

// Calls visit(T{}).
template <class Visit>
void with_combined_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::i8:
      return visit(std::int8_t{});
    case core::DType::u8:
      return visit(std::uint8_t{});
    case core::DType::i32:
      return visit(std::int32_t{});
    case core::DType::u32:
      return visit(std::uint32_t{});
    case core::DType::i64:
      return visit(std::int64_t{});
    case core::DType::u64:
      return visit(std::uint64_t{});
    case core::DType::f64:
      return visit(double{});
    case core::DType::f8e4m3:
      return visit(CudaE4M3{});
    case core::DType::f8e5m2:
      return visit(CudaE5M2{});
    default:
      return with_cuda_activation_type(dtype, visit);
  }
}

}  // namespace lockstep::kernels
