// Wrappers of PTX instructions: functions that are one instruction of the special function units, asynchronous copies
// into shared memory, and thread-block clusters whose blocks read each other's shared memory.
#pragma once

#include <cuda_runtime.h>
#include <nv/target>

#include <cstdint>

namespace lockstep::kernels {

// In the functions *_approx, results below 2^-126 become 0; infinities and NaN are handled correctly. CUDA's exp2f and
// division take several more instructions to support subnormal results.

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

// Starts a copy of kBytes (4, 8 or 16; both addresses are multiples of kBytes) from global to shared memory. After its
// wait_for_copies() the calling thread may read the bytes (PTX ISA, cp.async). Copies of 16 bytes bypass the L1 cache.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to_shared, const void* from) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
  }
}

// Closes the group of copies that this thread has started since the last call; a group may be empty.
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most the last kGroups groups of this thread are still in flight.
template <int kGroups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Programmatic dependent launch (CUDA Programming Guide), which devices before compute capability 9.0 do not have: lets
// the next kernel's blocks begin, and waits until the earlier kernel is done.
__device__ __forceinline__ void let_next_launch_begin() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaTriggerProgrammaticLaunchCompletion();))
}
__device__ __forceinline__ void wait_for_earlier_launch() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaGridDependencySynchronize();))
}

// Thread-block clusters (PTX ISA, barrier.cluster and mapa) need compute capability 9.0. In code for older devices, and
// in launches without clusters, each block is a cluster of one block.
__device__ __forceinline__ unsigned cluster_blocks() {
  unsigned blocks = 1;
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));))
  return blocks;
}

// Returns this block's rank in its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank = 0;
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));))
  return rank;
}

// A barrier of all threads of the cluster; their earlier stores to shared and global memory are visible to all after
// it.
__device__ __forceinline__ void meet_cluster() {
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (asm volatile("barrier.cluster.arrive.release.aligned;" ::
                                 : "memory");
                asm volatile("barrier.cluster.wait.acquire.aligned;" ::
                                 : "memory");),
               (__syncthreads();))
}

// Returns the address, in the shared memory of block `rank` of the cluster, that corresponds to `mine` in this block's.
// The peer block must not exit while its shared memory is used.
template <class T>
__device__ __forceinline__ T* shared_of_peer(T* mine, unsigned rank) {
  std::uint64_t at = reinterpret_cast<std::uint64_t>(mine);
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm("mapa.u64 %0, %1, %2;" : "=l"(at) : "l"(at), "r"(rank));))
  return reinterpret_cast<T*>(at);
}

// A barrier in each block's shared memory (PTX ISA, mbarrier), whose phase ends after `arrivals`. The cluster must meet
// between its beginning and its use.
__device__ __forceinline__ void begin_barrier(std::uint64_t* mine, unsigned arrivals) {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (const auto at = static_cast<unsigned>(__cvta_generic_to_shared(mine));
                                   asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals)
                                                : "memory");
                                   asm volatile("fence.mbarrier_init.release.cluster;" ::
                                                    : "memory");))
}
// Arrives at the barrier of block `rank`. Who waits for the phase sees what this thread has stored before.
__device__ __forceinline__ void arrive_at_peer(std::uint64_t* mine, unsigned rank) {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (auto at = static_cast<unsigned>(__cvta_generic_to_shared(mine));
                                   asm("mapa.shared::cluster.u32 %0, %1, %2;"
                                       : "=r"(at)
                                       : "r"(at), "r"(rank));
                                   asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(at)
                                                : "memory");))
}
// Waits until the phase of this parity, 0 for the first, has ended at this block's barrier.
__device__ __forceinline__ void wait_for_peers(std::uint64_t* mine, unsigned parity) {
  NV_IF_TARGET(
      NV_PROVIDES_SM_90,
      (const auto at = static_cast<unsigned>(__cvta_generic_to_shared(mine)); unsigned ended = 0; while (ended == 0) {
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
            "selp.u32 %0, 1, 0, p;}"
            : "=r"(ended)
            : "r"(at), "r"(parity)
            : "memory");
      }))
}

}  // namespace lockstep::kernels
