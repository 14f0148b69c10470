// Replaces CUDA's header of this name; see cuda_runtime.h.
#pragma once

#include "core/dtype.h"
#include "testing/emulated_cuda/cuda_fp16.h"

enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __nv_fp8_storage_t = std::uint8_t;
using __nv_fp8x2_storage_t = std::uint16_t;

// Values that are too large saturate to the largest number.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t /*saturation*/,
                                                __nv_fp8_interpretation_t kind) {
  const float largest = kind == __NV_E4M3 ? 448.0F : 57344.0F;
  if (std::fabs(x) > largest) x = std::copysign(largest, x);
  return kind == __NV_E4M3 ? lockstep::core::to_float8_e4m3(x).bits : lockstep::core::to_float8_e5m2(x).bits;
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  const float wide = kind == __NV_E4M3 ? lockstep::core::to_float(lockstep::core::Float8E4M3{x})
                                       : lockstep::core::to_float(lockstep::core::Float8E5M2{x});
  return {lockstep::core::to_float16(wide).bits};
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                                                     __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_fp8(x.x, saturation, kind) |
                                           __nv_cvt_float_to_fp8(x.y, saturation, kind) << 8);
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x), kind).x,
          __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x >> 8), kind).x};
}
