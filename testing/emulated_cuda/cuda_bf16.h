// Replaces CUDA's header of this name; see cuda_runtime.h.
#pragma once

#include "core/dtype.h"
#include "testing/emulated_cuda/cuda_runtime.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  return lockstep::core::to_float(lockstep::core::BFloat16{x.bits});
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {lockstep::core::to_bfloat16(x).bits};
}
