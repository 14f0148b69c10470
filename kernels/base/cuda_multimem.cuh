// What NVLink's switch does for kernels at a multicast address (core/cuda_multicast.h): reduces what all GPUs of the
// group have there, or stores to all of them. PTX ISA 9.7.9.14; 16 bytes at a time, whose address is a multiple of 16.
//
// A multicast address and the usual one of the same memory are aliases, and accesses by the one are ordered with
// accesses by the other only where a fence.proxy.alias lies between them on the way of the synchronisation (PTX
// ISA 8.6, Proxies; CUDA Programming Guide, Virtual Aliasing Support). The accesses themselves are relaxed at system
// scope: what orders them are the releases and acquires around them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/ptx>

#include <cstdint>

#include "core/dtype.h"
#include "kernels/base/cuda_elements.cuh"

namespace lockstep::kernels {

// For element types and operations that PTX has none for: false, and no load().
template <class T, core::ReduceOp kOp>
struct Multimem {
  static constexpr bool kExists = false;
};

struct MultimemExists {
  static constexpr bool kExists = true;
};

// 16 bytes, word by word: integers and f64 have no vectors.
template <class W>
__device__ __forceinline__ uint4 of_words(const W* at, W (*word)(const W*)) {
  constexpr int kWords = 16 / static_cast<int>(sizeof(W));
  union {
    W words[kWords];
    uint4 all;
  } got;
#pragma unroll
  for (int k = 0; k < kWords; ++k) got.words[k] = word(at + k);
  return got.all;
}

// An instruction is a literal, and so these are macros.
#define LOCKSTEP_MULTIMEM_VECTOR(T, op, instruction)                                               \
  template <>                                                                                      \
  struct Multimem<T, core::ReduceOp::op> : MultimemExists {                                        \
    __device__ __forceinline__ static uint4 load(const void* at) {                                 \
      uint4 got;                                                                                   \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " {%0, %1, %2, %3}, [%4];" \
                   : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)                            \
                   : "l"(__cvta_generic_to_global(at))                                             \
                   : "memory");                                                                    \
      return got;                                                                                  \
    }                                                                                              \
  };
#define LOCKSTEP_MULTIMEM_WORDS(T, op, instruction, constraint)                                                        \
  template <>                                                                                                          \
  struct Multimem<T, core::ReduceOp::op> : MultimemExists {                                                            \
    __device__ __forceinline__ static T word(const T* at) {                                                            \
      T got;                                                                                                           \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " %0, [%1];"                                   \
                   : constraint(got)                                                                                   \
                   : "l"(__cvta_generic_to_global(at))                                                                 \
                   : "memory");                                                                                        \
      return got;                                                                                                      \
    }                                                                                                                  \
    __device__ __forceinline__ static uint4 load(const void* at) { return of_words(static_cast<const T*>(at), word); } \
  };

LOCKSTEP_MULTIMEM_VECTOR(float, sum, "add.v4.f32")
LOCKSTEP_MULTIMEM_VECTOR(__nv_bfloat16, sum, "add.acc::f32.v4.bf16x2")
LOCKSTEP_MULTIMEM_VECTOR(__nv_bfloat16, min, "min.v4.bf16x2")
LOCKSTEP_MULTIMEM_VECTOR(__nv_bfloat16, max, "max.v4.bf16x2")
LOCKSTEP_MULTIMEM_VECTOR(__half, sum, "add.acc::f32.v4.f16x2")
LOCKSTEP_MULTIMEM_VECTOR(__half, min, "min.v4.f16x2")
LOCKSTEP_MULTIMEM_VECTOR(__half, max, "max.v4.f16x2")
LOCKSTEP_MULTIMEM_WORDS(double, sum, "add.f64", "=d")
LOCKSTEP_MULTIMEM_WORDS(std::int32_t, sum, "add.s32", "=r")
LOCKSTEP_MULTIMEM_WORDS(std::int32_t, min, "min.s32", "=r")
LOCKSTEP_MULTIMEM_WORDS(std::int32_t, max, "max.s32", "=r")
LOCKSTEP_MULTIMEM_WORDS(std::uint32_t, sum, "add.u32", "=r")
LOCKSTEP_MULTIMEM_WORDS(std::uint32_t, min, "min.u32", "=r")
LOCKSTEP_MULTIMEM_WORDS(std::uint32_t, max, "max.u32", "=r")
LOCKSTEP_MULTIMEM_WORDS(std::int64_t, sum, "add.u64", "=l")  // the same bits; PTX has no add.s64
LOCKSTEP_MULTIMEM_WORDS(std::int64_t, min, "min.s64", "=l")
LOCKSTEP_MULTIMEM_WORDS(std::int64_t, max, "max.s64", "=l")
LOCKSTEP_MULTIMEM_WORDS(std::uint64_t, sum, "add.u64", "=l")
LOCKSTEP_MULTIMEM_WORDS(std::uint64_t, min, "min.u64", "=l")
LOCKSTEP_MULTIMEM_WORDS(std::uint64_t, max, "max.u64", "=l")
#undef LOCKSTEP_MULTIMEM_VECTOR
#undef LOCKSTEP_MULTIMEM_WORDS

// The sum, or whatever kOp is, of what all GPUs have at `at`.
template <class T, core::ReduceOp kOp>
__device__ __forceinline__ Pack<T, 16 / sizeof(T)> multimem_load(const T* at) {
  Pack<T, 16 / sizeof(T)> pack;
  *reinterpret_cast<uint4*>(pack.items) = Multimem<T, kOp>::load(at);
  return pack;
}

// To all GPUs: bits, whatever they mean.
template <class T>
__device__ __forceinline__ void multimem_store(T* at, const Pack<T, 16 / sizeof(T)>& pack) {
  const uint4 bits = *reinterpret_cast<const uint4*>(pack.items);
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(at)), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}

// Between accesses to the same memory by its multicast address and by its own.
__device__ __forceinline__ void fence_between_aliases() {
  cuda::ptx::fence_proxy_alias();
}

}  // namespace lockstep::kernels
