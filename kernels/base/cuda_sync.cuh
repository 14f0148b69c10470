// Words in memory by which blocks of several kernels, and kernels of several devices, wait for each other.
#pragma once

#include <cuda_runtime.h>
#include <cuda/atomic>
#include <cuda/ptx>

#include <cstdint>

namespace lockstep::kernels {

// The scope of an ordering: kernels of one process on one device, or of the whole system.
enum class Reach : std::int32_t { device, system };

template <class T>
using SystemWord = cuda::atomic_ref<T, cuda::thread_scope_system>;

template <class T>
__device__ __forceinline__ T load_relaxed(T* word) {
  return SystemWord<T>(*word).load(cuda::memory_order_relaxed);
}
template <class T>
__device__ __forceinline__ void store_relaxed(T* word, T value) {
  SystemWord<T>(*word).store(value, cuda::memory_order_relaxed);
}

// Follows a relaxed load: stores made before the release that the load saw are visible after this.
__device__ __forceinline__ void acquire_fence(Reach reach) {
  if (reach == Reach::device) {
    cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_device);
  } else {
    cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_system);
  }
}
// A release at system scope waits until other devices and the host can see this thread's stores; one at device scope
// until they are in the L2 cache.
template <class T>
__device__ __forceinline__ void store_release(T* word, T value, Reach reach) {
  if (reach == Reach::device) {
    cuda::atomic_ref<T, cuda::thread_scope_device>(*word).store(value, cuda::memory_order_release);
  } else {
    SystemWord<T>(*word).store(value, cuda::memory_order_release);
  }
}

// Called between polls of a word that has not arrived: yields the multiprocessor to other warps for a moment.
__device__ __forceinline__ void give_way() {
  __nanosleep(20);
}

// A clock that all kernels of a device share; its resolution may be as coarse as a microsecond.
__device__ __forceinline__ std::uint64_t device_nanoseconds() {
  return cuda::ptx::get_sreg_globaltimer();
}

}  // namespace lockstep::kernels
