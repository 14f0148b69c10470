// Operations of one thread of a kernel that is a template over its lane, on CUDA devices of compute capability 8.0 or
// later: each an instruction of the PTX ISA or an intrinsic. emulated_block.h has the same functions on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/base/cuda_elements.cuh"

namespace lockstep::kernels {

struct CudaLane {
  // Four 8 x 8 matrices of 16-bit elements: word w of a lane has two adjacent elements of matrix w.
  struct Fragment {
    std::uint32_t words[4];
  };

  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int lane() const { return thread() % 32; }
  __device__ __forceinline__ int warp() const { return thread() / 32; }
  __device__ __forceinline__ void* shared() const {
    extern __shared__ uint4 memory_of_the_block[];
    return memory_of_the_block;
  }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ float from_lane(float value, int lane) const {
    return __shfl_sync(0xffffffffU, value, lane);
  }
  __device__ __forceinline__ float from_partner(float value, int mask) const {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }
  __device__ __forceinline__ std::uint32_t from_partner(std::uint32_t word, int mask) const {
    return __shfl_xor_sync(0xffffffffU, word, mask);
  }
  // 2^x by one instruction: within 2 units in the last place, 0 if the result is below 2^-126 (exp2f takes four
  // instructions to handle those).
  __device__ __forceinline__ static float exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(power) : "f"(x));
    return power;
  }

  // Copies kBytes from memory into shared memory, or stores zeros if they are not `there`, in which case `from` may be
  // any address; complete after wait_for_copies() of the same thread.
  template <int kBytes>
  __device__ __forceinline__ void copy(void* to, const void* from, bool there) const {
    const int read_bytes = there ? kBytes : 0;
    if constexpr (kBytes == 16) {  // bypasses the L1 cache
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
                   "r"(read_bytes)
                   : "memory");
    } else {
      static_assert(kBytes == 8);
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(shared_address(to)), "l"(from),
                   "r"(read_bytes)
                   : "memory");
    }
  }
  __device__ __forceinline__ void wait_for_copies() const { asm volatile("cp.async.wait_all;\n" ::: "memory"); }

  // Lanes 8 w to 8 w + 7 give the addresses of the rows of matrix w.
  __device__ __forceinline__ Fragment load_matrices(const void* row) const {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(f.words[0]), "=r"(f.words[1]), "=r"(f.words[2]), "=r"(f.words[3])
                 : "r"(shared_address(row))
                 : "memory");
    return f;
  }
  __device__ __forceinline__ Fragment load_matrices_transposed(const void* row) const {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(f.words[0]), "=r"(f.words[1]), "=r"(f.words[2]), "=r"(f.words[3])
                 : "r"(shared_address(row))
                 : "memory");
    return f;
  }

  // Computes sums[16, 8] += a[16, 16] b[16, 8] for the warp.
  template <class T>
  __device__ __forceinline__ void multiply_add(float (&sums)[4], const Fragment& a, std::uint32_t b0,
                                               std::uint32_t b1) const {
    if constexpr (std::is_same_v<T, __half>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};\n"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
    } else {
      static_assert(std::is_same_v<T, __nv_bfloat16>);
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};\n"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
    }
  }

  // Packs two elements into one word, the first in the lower half, rounded to nearest, ties to even.
  template <class T>
  __device__ __forceinline__ static std::uint32_t pack(float first, float second) {
    std::uint32_t word;
    if constexpr (std::is_same_v<T, __half>) {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(second), "f"(first));
    } else {
      static_assert(std::is_same_v<T, __nv_bfloat16>);
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(second), "f"(first));
    }
    return word;
  }
  struct Two {
    float at[2];
  };
  template <class T>
  __device__ __forceinline__ static Two unpack(std::uint32_t word) {
    const auto pair = Pack<T, 2>::load(reinterpret_cast<const T*>(&word));
    return {{pair[0], pair[1]}};
  }
  template <class T>
  __device__ __forceinline__ static float widen(T value) {
    return to_f32(value);
  }
  template <class T>
  __device__ __forceinline__ static T narrow(float value) {
    return from_f32<T>(value);
  }
  template <class T>
  __device__ __forceinline__ static void store_pair(T* to, float first, float second) {
    Pack<T, 2> pair;
    pair.set(0, first);
    pair.set(1, second);
    pair.store(to);
  }
  // Two elements of 16 bits, as pack() returns them.
  __device__ __forceinline__ static std::uint32_t load_word(const void* from) {
    return *static_cast<const std::uint32_t*>(from);
  }
  __device__ __forceinline__ static void store_words(void* to, const std::uint32_t (&words)[4]) {
    *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  }

 private:
  __device__ __forceinline__ static std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
  }
};

}  // namespace lockstep::kernels
