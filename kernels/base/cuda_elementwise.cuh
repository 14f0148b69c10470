// Elementwise kernels: outputs at i depend only on inputs at i.
#pragma once

#include <cstdint>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace lockstep::kernels {

// An operation is a struct of pointers and numbers with
//   template <int kItems> __device__ Loaded load(std::int64_t first) const         inputs first to first + kItems - 1
//   template <int kItems> __device__ void store(std::int64_t first, const Loaded&) const
// A thread loads all inputs of an element before it stores, so outputs may be inputs.
template <int kItems, int kAhead, class Operation>
__global__ void __launch_bounds__(kBlockThreads) elementwise_kernel(Operation operation, std::int64_t count) {
  wait_for_stream();
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kBlockThreads * kAhead + threadIdx.x) * kItems;
  const std::int64_t grid = std::int64_t{gridDim.x} * kBlockThreads * kAhead * kItems;
  const std::int64_t whole = count / kItems * kItems;
  for (std::int64_t tile = begin; tile < whole; tile += grid) {
    decltype(operation.template load<kItems>(0)) loaded[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t first = tile + k * kBlockThreads * kItems;
      if (first < whole) loaded[k] = operation.template load<kItems>(first);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t first = tile + k * kBlockThreads * kItems;
      if (first < whole) operation.template store<kItems>(first, loaded[k]);
    }
  }
  if constexpr (kItems > 1) {  // the elements after the last pack, fewer than there are threads
    const std::int64_t last = whole + threadIdx.x;
    if (blockIdx.x == 0 && last < count) operation.template store<1>(last, operation.template load<1>(last));
  }
}

// `kWidest`: bytes of the widest element; `items` comes from items_an_access().
template <std::size_t kWidest, int kAhead = 2, class Operation>
void run_elementwise(CudaContext& cuda, const char* name, const Operation& operation, std::int64_t count, int items) {
  with_items<static_cast<int>(kAccessBytes / kWidest)>(items, [&](auto constant) {
    constexpr int kItems = decltype(constant)::value;
    constexpr std::int64_t kTile = std::int64_t{kBlockThreads} * kAhead * kItems;
    const LaunchShape shape{.blocks = grid_blocks((count + kTile - 1) / kTile, cuda.num_multiprocessors())};
    launch_early(cuda, name, shape, elementwise_kernel<kItems, kAhead, Operation>, operation, count);
  });
}

}  // namespace lockstep::kernels
