// Operations of one thread of a kernel on compute capability 9.0a beyond cuda_lane.cuh: barriers in shared memory,
// copies of boxes by the copy engine (TMA), products by a warpgroup (wgmma), registers that move from warpgroup to
// warpgroup. Each function is an instruction of the PTX ISA (9.0: mbarrier, cp.async.bulk.tensor, wgmma, setmaxnreg,
// barrier). emulated_hopper.h has the same functions on the CPU.
//
// Shared memory is identified by its 32-bit address, as in the instructions.
#pragma once

#include "kernels/base/cuda_lane.cuh"
#include "kernels/base/tensor_map.h"

namespace lockstep::kernels {

// Sums of a warpgroup's product, [64, 8 kBlocks]: 4 f32 per block, as operands of an instruction.
#define LOCKSTEP_SUMS_4(b) "+f"(d[b][0]), "+f"(d[b][1]), "+f"(d[b][2]), "+f"(d[b][3])
#define LOCKSTEP_SUMS_16(b) LOCKSTEP_SUMS_4(b), LOCKSTEP_SUMS_4(b + 1), LOCKSTEP_SUMS_4(b + 2), LOCKSTEP_SUMS_4(b + 3)
#define LOCKSTEP_SUMS_32(b) LOCKSTEP_SUMS_16(b), LOCKSTEP_SUMS_16(b + 4)
#define LOCKSTEP_SUMS_64(b) LOCKSTEP_SUMS_32(b), LOCKSTEP_SUMS_32(b + 8)
#define LOCKSTEP_SUMS_128(b) LOCKSTEP_SUMS_64(b), LOCKSTEP_SUMS_64(b + 16)
#define LOCKSTEP_NAMES_32                                                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31}"
#define LOCKSTEP_NAMES_64                                                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "  \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define LOCKSTEP_NAMES_128                                                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "  \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "  \
  "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "  \
  "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "  \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// The instruction with both operands in shared memory (a, b: descriptors), and with the first in registers. The other
// operands follow the sums, from number `n0` on.
#define LOCKSTEP_WGMMA_SHARED(type, columns, sums, n0, n1, n2, n3, n4)                                         \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" n2                                                            \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " " LOCKSTEP_NAMES_##sums \
               ", %" n0 ", %" n1 ", p, 1, 1, %" n3 ", %" n4 ";}\n"                                             \
               : LOCKSTEP_SUMS_##sums(0)                                                                       \
               : "l"(a), "l"(b), "r"(add), "n"(kTransposedA), "n"(kTransposedB))
#define LOCKSTEP_WGMMA_REGISTERS(type, columns, sums, n0, n1, n2, n3, n4, n5, n6)                              \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" n5                                                            \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " " LOCKSTEP_NAMES_##sums \
               ", {%" n0 ", %" n1 ", %" n2 ", %" n3 "}, %" n4 ", p, 1, 1, %" n6 ";}\n"                         \
               : LOCKSTEP_SUMS_##sums(0)                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposedB))

struct HopperLane : CudaLane {
  using Map = TensorMap;

  // Number of the warpgroup; read from one lane for all, so that the compiler knows it is uniform and does not
  // serialise products.
  __device__ __forceinline__ int group() const { return __shfl_sync(0xffffffffU, thread() / 128, 0); }

  // First address of dynamic shared memory, a multiple of 1024: the swizzle's pattern repeats after this many bytes.
  __device__ __forceinline__ std::uint32_t window() const {
    extern __shared__ __align__(1024) unsigned char memory_of_the_hopper_block[];
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory_of_the_hopper_block));
  }

  // Barriers in shared memory, 8 bytes each: a phase ends after `count` arrivals and all expected bytes.
  __device__ __forceinline__ void begin_barrier(std::uint32_t barrier, int count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(count) : "memory");
  }
  // Makes barriers that this thread has begun visible to the copy engine.
  __device__ __forceinline__ void publish_barriers() const {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __device__ __forceinline__ void arrive(std::uint32_t barrier) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
  }
  __device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
  }
  // Waits until the phase of this parity (0 for the first) has ended; on a new barrier, the phase of parity 1 has
  // already ended. A phase that never ends is a bug of the kernel, which then fails with an error instead of hanging.
  __device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity) const {
    if (has_ended(barrier, parity)) return;
    const std::uint64_t start = nanoseconds();
    while (!has_ended(barrier, parity)) {
      if (nanoseconds() - start > kPatienceNs) give_up();
    }
  }

  // Copies the box whose first element is (batch, row, head, column) to shared memory, at a multiple of 1024, in rows
  // of 128 bytes whose 16-byte pieces are swizzled; its bytes count for the barrier. For one thread.
  __device__ __forceinline__ void load_box(std::uint32_t to, const TensorMap& map, std::uint32_t barrier, int column,
                                           int head, int row, int batch) const {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
        "%5}], "
        "[%6];\n" ::"r"(to),
        "l"(&map), "r"(column), "r"(head), "r"(row), "r"(batch), "r"(barrier)
        : "memory");
  }

  // Words of shared memory; publish_stores() makes them visible to later products of every thread that this thread then
  // meets at a barrier.
  struct Four {
    float at[4];
  };
  __device__ __forceinline__ void store_shared(std::uint32_t to, std::uint32_t word) const {
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(word) : "memory");
  }
  __device__ __forceinline__ void store_shared(std::uint32_t to, float first, float second) const {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(to), "f"(first), "f"(second) : "memory");
  }
  __device__ __forceinline__ void clear_sixteen(std::uint32_t to) const {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};\n" ::"r"(to), "r"(0) : "memory");
  }
  __device__ __forceinline__ std::uint32_t load_shared(std::uint32_t from) const {
    std::uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(word) : "r"(from) : "memory");
    return word;
  }
  __device__ __forceinline__ Four load_four(std::uint32_t from) const {
    Four four;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(four.at[0]), "=f"(four.at[1]), "=f"(four.at[2]), "=f"(four.at[3])
                 : "r"(from)
                 : "memory");
    return four;
  }
  __device__ __forceinline__ void publish_stores() const {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  }

  // Memory that blocks share. A turn is reached when this many blocks have passed it on. Stores and additions made
  // before a turn was passed on, by threads that had met the passing thread at a barrier, are visible to every thread
  // that has waited for the turn.
  __device__ __forceinline__ std::uint32_t take_ticket(std::uint32_t* counter) const { return atomicAdd(counter, 1U); }
  __device__ __forceinline__ void wait_for_turn(std::uint32_t* counter, std::uint32_t turn) const {
    if (load_acquire(counter) == turn) return;
    const std::uint64_t start = nanoseconds();
    while (load_acquire(counter) != turn) {
      if (nanoseconds() - start > kPatienceNs) give_up();
    }
  }
  __device__ __forceinline__ void pass_turn(std::uint32_t* counter) const {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(counter) : "memory");
  }
  __device__ __forceinline__ void store_two(float* to, float first, float second) const {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};\n" ::"l"(to), "f"(first), "f"(second) : "memory");
  }
  __device__ __forceinline__ void add_two(float* to, float first, float second) const {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};\n" ::"l"(to), "f"(first), "f"(second) : "memory");
  }

  // For all threads of a warpgroup. At launch each has a third of the 504 registers per three threads.
  template <int kRegisters>
  __device__ __forceinline__ void give_registers() const {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
  }
  template <int kRegisters>
  __device__ __forceinline__ void take_registers() const {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
  }

  // Named barrier `id`, 1 to 15, for `threads` threads, of which some wait and others only arrive.
  __device__ __forceinline__ void meet(int id, int threads) const {
    asm volatile("barrier.cta.sync.aligned %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
  }
  __device__ __forceinline__ void arrive_at_meeting(int id, int threads) const {
    asm volatile("barrier.cta.arrive.aligned %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
  }

  // Products of a warpgroup: begin_products(), products, commit_products(). Their sums, and an `a` in registers, must
  // not be touched until wait_for_products<number of later groups that may still be in flight>() and settle(sums).
  __device__ __forceinline__ void begin_products() const { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
  __device__ __forceinline__ void commit_products() const {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
  }
  template <int kPending>
  __device__ __forceinline__ void wait_for_products() const {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
  }
  // Prevents the compiler from reading sums before the wait.
  template <int kBlocks>
  __device__ __forceinline__ void settle(float (&sums)[kBlocks][4]) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      asm volatile("" : "+f"(sums[b][0]), "+f"(sums[b][1]), "+f"(sums[b][2]), "+f"(sums[b][3])::"memory");
    }
  }

  // Computes d[64, 8 kBlocks] = a[64, 16] b[16, 8 kBlocks] (+ d if `add`) for the warpgroup, with a and b as
  // descriptors. Transposed: the depth of 16 is rows of shared memory; otherwise it lies along the rows.
  template <class T, bool kTransposedA, bool kTransposedB, int kBlocks>
  __device__ __forceinline__ void multiply(float (&d)[kBlocks][4], std::uint64_t a, std::uint64_t b, int add) const {
    static_assert(kBlocks == 8 || kBlocks == 16 || kBlocks == 32);
    if constexpr (kBlocks == 32 && std::is_same_v<T, __half>) {
      LOCKSTEP_WGMMA_SHARED("f16", 256, 128, "128", "129", "130", "131", "132");
    } else if constexpr (kBlocks == 32) {
      LOCKSTEP_WGMMA_SHARED("bf16", 256, 128, "128", "129", "130", "131", "132");
    } else if constexpr (kBlocks == 8 && std::is_same_v<T, __half>) {
      LOCKSTEP_WGMMA_SHARED("f16", 64, 32, "32", "33", "34", "35", "36");
    } else if constexpr (kBlocks == 8) {
      LOCKSTEP_WGMMA_SHARED("bf16", 64, 32, "32", "33", "34", "35", "36");
    } else if constexpr (std::is_same_v<T, __half>) {
      LOCKSTEP_WGMMA_SHARED("f16", 128, 64, "64", "65", "66", "67", "68");
    } else {
      LOCKSTEP_WGMMA_SHARED("bf16", 128, 64, "64", "65", "66", "67", "68");
    }
  }
  // The same with `a` in registers, in the layout of mma.m16n8k16.
  template <class T, bool kTransposedB, int kBlocks>
  __device__ __forceinline__ void multiply(float (&d)[kBlocks][4], const std::uint32_t (&a)[4], std::uint64_t b,
                                           int add) const {
    static_assert(kBlocks == 8 || kBlocks == 16);
    if constexpr (kBlocks == 8 && std::is_same_v<T, __half>) {
      LOCKSTEP_WGMMA_REGISTERS("f16", 64, 32, "32", "33", "34", "35", "36", "37", "38");
    } else if constexpr (kBlocks == 8) {
      LOCKSTEP_WGMMA_REGISTERS("bf16", 64, 32, "32", "33", "34", "35", "36", "37", "38");
    } else if constexpr (std::is_same_v<T, __half>) {
      LOCKSTEP_WGMMA_REGISTERS("f16", 128, 64, "64", "65", "66", "67", "68", "69", "70");
    } else {
      LOCKSTEP_WGMMA_REGISTERS("bf16", 128, 64, "64", "65", "66", "67", "68", "69", "70");
    }
  }

 private:
  static constexpr std::uint64_t kPatienceNs = 2'000'000'000;

  __device__ __forceinline__ static bool has_ended(std::uint32_t barrier, std::uint32_t parity) {
    std::uint32_t ended;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}\n"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended != 0;
  }
  // Fails by a store to address 0, which ends the kernel with an error. (A kernel with a trap instruction in it gets no
  // more registers from setmaxnreg than at its launch: ptxas 13.0 then spills and serialises products.)
  __device__ __forceinline__ static void give_up() {
    asm volatile("st.global.u32 [%0], %1;\n" ::"l"(std::uint64_t{0}), "r"(0) : "memory");
  }
  __device__ __forceinline__ static std::uint32_t load_acquire(const std::uint32_t* from) {
    std::uint32_t word;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(word) : "l"(from) : "memory");
    return word;
  }
  __device__ __forceinline__ static std::uint64_t nanoseconds() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;\n" : "=l"(now));
    return now;
  }
};

#undef LOCKSTEP_SUMS_4
#undef LOCKSTEP_SUMS_16
#undef LOCKSTEP_SUMS_32
#undef LOCKSTEP_SUMS_64
#undef LOCKSTEP_SUMS_128
#undef LOCKSTEP_NAMES_32
#undef LOCKSTEP_NAMES_64
#undef LOCKSTEP_NAMES_128
#undef LOCKSTEP_WGMMA_SHARED
#undef LOCKSTEP_WGMMA_REGISTERS

}  // namespace lockstep::kernels
