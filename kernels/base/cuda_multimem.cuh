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

// Of element types and operations that PTX has none for: false, and no load().
template <class T, core::ReduceOp kOp>
struct Multimem {
  static constexpr bool kExists = false;
};

struct MultimemExists {
  static constexpr bool kExists = true;
};

template <>
struct Multimem<float, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
};
template <>
struct Multimem<__nv_bfloat16, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
};
template <>
struct Multimem<__nv_bfloat16, core::ReduceOp::min> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.min.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
};
template <>
struct Multimem<__nv_bfloat16, core::ReduceOp::max> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.max.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
};
template <>
struct Multimem<__half, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
};
template <>
struct Multimem<__half, core::ReduceOp::min> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.min.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
};
template <>
struct Multimem<__half, core::ReduceOp::max> : MultimemExists {
  __device__ __forceinline__ static uint4 load(const void* at) {
    uint4 got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.max.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
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

template <>
struct Multimem<double, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static double word(const double* at) {
    double got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f64 %0, [%1];"
                 : "=d"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const double*>(at), word);
  }
};
template <>
struct Multimem<std::int32_t, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static std::int32_t word(const std::int32_t* at) {
    std::int32_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.s32 %0, [%1];"
                 : "=r"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::int32_t*>(at), word);
  }
};
template <>
struct Multimem<std::int32_t, core::ReduceOp::min> : MultimemExists {
  __device__ __forceinline__ static std::int32_t word(const std::int32_t* at) {
    std::int32_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.min.s32 %0, [%1];"
                 : "=r"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::int32_t*>(at), word);
  }
};
template <>
struct Multimem<std::int32_t, core::ReduceOp::max> : MultimemExists {
  __device__ __forceinline__ static std::int32_t word(const std::int32_t* at) {
    std::int32_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.max.s32 %0, [%1];"
                 : "=r"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::int32_t*>(at), word);
  }
};
template <>
struct Multimem<std::uint32_t, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static std::uint32_t word(const std::uint32_t* at) {
    std::uint32_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u32 %0, [%1];"
                 : "=r"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::uint32_t*>(at), word);
  }
};
template <>
struct Multimem<std::uint32_t, core::ReduceOp::min> : MultimemExists {
  __device__ __forceinline__ static std::uint32_t word(const std::uint32_t* at) {
    std::uint32_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.min.u32 %0, [%1];"
                 : "=r"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::uint32_t*>(at), word);
  }
};
template <>
struct Multimem<std::uint32_t, core::ReduceOp::max> : MultimemExists {
  __device__ __forceinline__ static std::uint32_t word(const std::uint32_t* at) {
    std::uint32_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.max.u32 %0, [%1];"
                 : "=r"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::uint32_t*>(at), word);
  }
};
template <>
struct Multimem<std::int64_t, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static std::int64_t word(const std::int64_t* at) {
    std::int64_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u64 %0, [%1];"
                 : "=l"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::int64_t*>(at), word);
  }
};
template <>
struct Multimem<std::int64_t, core::ReduceOp::min> : MultimemExists {
  __device__ __forceinline__ static std::int64_t word(const std::int64_t* at) {
    std::int64_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.min.s64 %0, [%1];"
                 : "=l"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::int64_t*>(at), word);
  }
};
template <>
struct Multimem<std::int64_t, core::ReduceOp::max> : MultimemExists {
  __device__ __forceinline__ static std::int64_t word(const std::int64_t* at) {
    std::int64_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.max.s64 %0, [%1];"
                 : "=l"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::int64_t*>(at), word);
  }
};
template <>
struct Multimem<std::uint64_t, core::ReduceOp::sum> : MultimemExists {
  __device__ __forceinline__ static std::uint64_t word(const std::uint64_t* at) {
    std::uint64_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u64 %0, [%1];"
                 : "=l"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::uint64_t*>(at), word);
  }
};
template <>
struct Multimem<std::uint64_t, core::ReduceOp::min> : MultimemExists {
  __device__ __forceinline__ static std::uint64_t word(const std::uint64_t* at) {
    std::uint64_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.min.u64 %0, [%1];"
                 : "=l"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::uint64_t*>(at), word);
  }
};
template <>
struct Multimem<std::uint64_t, core::ReduceOp::max> : MultimemExists {
  __device__ __forceinline__ static std::uint64_t word(const std::uint64_t* at) {
    std::uint64_t got;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.max.u64 %0, [%1];"
                 : "=l"(got)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return got;
  }
  __device__ __forceinline__ static uint4 load(const void* at) {
    return of_words(static_cast<const std::uint64_t*>(at), word);
  }
};

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
