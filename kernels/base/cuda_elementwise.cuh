// Kernels whose outputs at i need inputs at i only.
#pragma once

#include <cstdint>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace lockstep::kernels {

// An operation is a struct of pointers and numbers with
//   template <int kItems> __device__ Loaded load(std::int64_t first) const         inputs first to first + kItems - 1
//   template <int kItems> __device__ void store(std::int64_t first, const Loaded&) const
// Loads of a thread come before its stores, so that outputs may be inputs. Several packs a thread are loaded before the
// first is used: bytes under way hide the latency of memory.
template <int kItems, int kUnroll, class Operation>
__global__ void __launch_bounds__(kBlockThreads) elementwise_kernel(Operation operation, std::int64_t count) {
  const std::int64_t packs = count / kItems;
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads * kUnroll;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kBlockThreads * kUnroll + threadIdx.x;
  for (std::int64_t pack = begin; pack < packs; pack += stride) {
    decltype(operation.template load<kItems>(0)) loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t mine = pack + u * kBlockThreads;
      if (mine < packs) loaded[u] = operation.template load<kItems>(mine * kItems);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t mine = pack + u * kBlockThreads;
      if (mine < packs) operation.template store<kItems>(mine * kItems, loaded[u]);
    }
  }
  if constexpr (kItems > 1) {  // the elements after the last pack, fewer than threads
    const std::int64_t last = packs * kItems + threadIdx.x;
    if (blockIdx.x == 0 && last < count) operation.template store<1>(last, operation.template load<1>(last));
  }
}

// `kWidest`: bytes of the widest element; `items` as items_an_access() says.
template <std::size_t kWidest, int kUnroll = 2, class Operation>
void run_elementwise(CudaContext& cuda, const char* name, const Operation& operation, std::int64_t count, int items) {
  with_items<static_cast<int>(kAccessBytes / kWidest)>(items, [&](auto constant) {
    constexpr int kItems = decltype(constant)::value;
    constexpr std::int64_t kTile = std::int64_t{kBlockThreads} * kUnroll * kItems;
    const LaunchShape shape{.blocks = grid_blocks((count + kTile - 1) / kTile, cuda.num_multiprocessors())};
    launch(cuda, name, shape, elementwise_kernel<kItems, kUnroll, Operation>, operation, count);
  });
}

}  // namespace lockstep::kernels
