// 8-bit floats in CUDA kernels, with the bits of core/narrow_float.h.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>

namespace lockstep::kernels {

struct CudaE4M3 {
  std::uint8_t bits;

  // The hardware's conversion saturates at 448, but overflow must become NaN. 464 is halfway to 480, the next number
  // that the format would have; the tie rounds to 448, which is even.
  __device__ __forceinline__ static CudaE4M3 from_f32(float x) {
    const std::uint8_t sign = signbit(x) ? 0x80 : 0;
    if (!(fabsf(x) <= 464.0F)) return {static_cast<std::uint8_t>(sign | 0x7f)};
    return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
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
};

// Every 8-bit float is exact in half.
__device__ __forceinline__ float to_f32(CudaE4M3 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
}
__device__ __forceinline__ float to_f32(CudaE5M2 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E5M2)));
}

}  // namespace lockstep::kernels
