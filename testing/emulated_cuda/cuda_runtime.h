// Replaces CUDA's header of this name, for emulated_grid.h: the parts of the language and the runtime that our kernels
// use.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "testing/emulated_cuda/emulated_grid.h"

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local  // a thread runs one block at a time, and its threads are coroutines

using std::isfinite;
using std::isnan;
using std::signbit;

struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
struct uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  // NOLINTNEXTLINE(google-explicit-constructor): as in CUDA
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

extern thread_local uint3 threadIdx;
extern thread_local uint3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;

inline void __syncthreads() {
  lockstep::kernels::emulated::meet_block();
}
// The shared word must not be written before all threads have read it.
inline int __syncthreads_or(int mine) {
  static thread_local int any = 0;
  any |= mine;
  __syncthreads();
  const int all = any;
  __syncthreads();
  any = 0;
  __syncthreads();
  return all;
}
template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int lane_mask) {
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = lockstep::kernels::emulated::exchange(word, lane_mask);
  std::memcpy(&value, &word, sizeof value);
  return value;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned bits = predicate != 0 ? 1U << (threadIdx.x % 32) : 0;
  for (int distance = 16; distance > 0; distance /= 2) bits |= __shfl_xor_sync(mask, bits, distance);
  return bits;
}
inline int __popc(unsigned bits) {
  return std::popcount(bits);
}
template <class T>
T atomicAdd(T* address, T value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}
template <class T>
T atomicMax(T* address, T value) {
  std::atomic_ref<T> most(*address);
  T known = most.load();
  while (known < value && !most.compare_exchange_weak(known, value)) {
  }
  return known;
}
template <class T>
T atomicExch(T* address, T value) {
  return std::atomic_ref<T>(*address).exchange(value);
}
inline void __syncwarp() {
  lockstep::kernels::emulated::exchange(0, 0);
}
inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void __nanosleep(unsigned /*nanoseconds*/) {
  lockstep::kernels::emulated::give_way();
}

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(x)));
}
inline void sincospif(float x, float* sine, float* cosine) {
  constexpr double kPi = 3.141592653589793;
  *sine = static_cast<float>(std::sin(kPi * static_cast<double>(x)));
  *cosine = static_cast<float>(std::cos(kPi * static_cast<double>(x)));
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
using cudaStream_t = void*;
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributeClusterDimension };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() {
  lockstep::kernels::emulated::wait_for_stream();
}
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute /*attribute*/, int value) {
  using namespace lockstep::kernels::emulated;
  const auto dynamic_bytes = static_cast<std::size_t>(value);
  if (dynamic_bytes + kStaticSharedBytes > kMostSharedBytes) return cudaErrorInvalidValue;
  allow_dynamic_shared(kernel, dynamic_bytes);
  return cudaSuccess;
}
struct cudaFuncAttributes {
  std::size_t localSizeBytes;
  std::size_t sharedSizeBytes;
};
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*kernel*/) {
  *attributes = {.localSizeBytes = 0, .sharedSizeBytes = lockstep::kernels::emulated::kStaticSharedBytes};
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
  *value = static_cast<int>(lockstep::kernels::emulated::kMostSharedBytes);
  return cudaSuccess;
}
enum cudaLimit { cudaLimitStackSize };
inline cudaError_t cudaDeviceGetLimit(std::size_t* size_bytes, cudaLimit /*limit*/) {
  *size_bytes = 1024;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetLimit(cudaLimit /*limit*/, std::size_t /*size_bytes*/) {
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size_bytes, cudaStream_t /*stream*/) {
  std::memset(to, value, size_bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind /*kind*/,
                                   cudaStream_t /*stream*/) {
  std::memcpy(to, from, size_bytes);
  return cudaSuccess;
}
template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), const Args&... args) {
  if (!lockstep::kernels::emulated::may_launch(reinterpret_cast<const void*>(kernel), config->dynamicSmemBytes)) {
    return cudaErrorInvalidValue;
  }
  lockstep::kernels::emulated::GridShape shape{config->gridDim.x, config->blockDim.x, config->dynamicSmemBytes};
  for (unsigned a = 0; a < config->numAttrs; ++a) {
    const cudaLaunchAttribute& attribute = config->attrs[a];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      shape.cluster = attribute.val.clusterDim.x;
    } else {
      shape.early = attribute.val.programmaticStreamSerializationAllowed != 0;
    }
  }
  lockstep::kernels::emulated::run_grid(shape, [&] { kernel(args...); });
  return cudaSuccess;
}
