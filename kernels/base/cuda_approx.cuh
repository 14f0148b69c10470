// Functions that are one instruction of the special function units. Results below 2^-126 become 0; infinities and NaN
// are handled correctly. CUDA's exp2f and division take several more instructions to support subnormal results.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::kernels {

inline constexpr float kLog2E = 1.4426950408889634F;

// 2^x within 2 units in the last place (PTX ISA, ex2.approx.ftz.f32).
__device__ __forceinline__ float exp2_approx(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// 1/x within 1 unit in the last place (PTX ISA, rcp.approx.ftz.f32).
__device__ __forceinline__ float reciprocal_approx(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

}  // namespace lockstep::kernels
