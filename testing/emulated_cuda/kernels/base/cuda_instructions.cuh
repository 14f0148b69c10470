// Replaces the header of this name, which contains PTX.
#pragma once

#include <cfloat>
#include <cmath>

#include "testing/emulated_cuda/cuda_runtime.h"

namespace lockstep::kernels {

inline float flushed(float x) {
  return std::fabs(x) < FLT_MIN ? std::copysign(0.0F, x) : x;
}
inline float exp2_approx(float x) {
  return flushed(std::exp2(flushed(x)));
}
inline float reciprocal_approx(float x) {
  return flushed(1 / flushed(x));
}

template <int kBytes>
void copy_async(void* to_shared, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulated::copy_async(to_shared, from, kBytes);
}
inline void end_copy_group() {
  emulated::end_copy_group();
}
template <int kGroups>
void wait_for_copies() {
  emulated::wait_for_copies(kGroups);
}
inline void let_next_launch_begin() {
  cudaTriggerProgrammaticLaunchCompletion();
}
inline void wait_for_earlier_launch() {
  cudaGridDependencySynchronize();
}
inline unsigned cluster_blocks() {
  return emulated::cluster_blocks();
}
inline unsigned cluster_rank() {
  return blockIdx.x % emulated::cluster_blocks();
}
inline void meet_cluster() {
  emulated::meet_cluster();
}
template <class T>
T* shared_of_peer(T* mine, unsigned rank) {
  return const_cast<T*>(static_cast<const T*>(emulated::shared_of_peer(mine, rank)));
}
// All threads of the cluster wait, after all have arrived.
inline void begin_barrier(std::uint64_t* /*mine*/, unsigned /*arrivals*/) {}
inline void arrive_at_peer(std::uint64_t* /*mine*/, unsigned /*rank*/) {}
inline void wait_for_peers(std::uint64_t* /*mine*/, unsigned /*parity*/) {
  emulated::meet_cluster();
}

}  // namespace lockstep::kernels
