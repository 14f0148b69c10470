// Replaces CUDA's header of this name; see cuda_runtime.h.
#pragma once

#include "core/dtype.h"
#include "testing/emulated_cuda/cuda_runtime.h"

struct __half_raw {
  std::uint16_t x;
};
struct __half2_raw {
  std::uint16_t x;
  std::uint16_t y;
};
struct __half {
  std::uint16_t bits;
  __half() = default;
  explicit __half(__half_raw raw) : bits(raw.x) {}
};
inline float __half2float(__half x) {
  return lockstep::core::to_float(lockstep::core::Float16{x.bits});
}
inline __half __float2half_rn(float x) {
  return __half(__half_raw{lockstep::core::to_float16(x).bits});
}
