#include <initializer_list>

#include "core/error.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/base/memory_loops.h"

namespace lockstep::kernels {
namespace {

constexpr int kItems = 4;  // f32 of one access
constexpr int kAhead = 4;  // accesses that a thread has under way, of each array
using Floats = Pack<float, kItems>;

// Calls use(first) for the packs of the grid's threads, each a stride of the whole grid from the next.
template <class Load, class Use>
__device__ __forceinline__ void for_my_packs(std::int64_t count, Load&& load, Use&& use) {
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) * kItems;
  for_packs<kAhead>(begin, std::int64_t{gridDim.x} * kBlockThreads * kItems, count, load, use);
}

__global__ void __launch_bounds__(kBlockThreads) read_kernel(const float* from, std::int64_t count, float* sums) {
  Sum mine;
  for_my_packs(
      count, [&](std::int64_t i) { return Floats::load_once(from + i); },
      [&](std::int64_t /*i*/, const Floats& pack) {
#pragma unroll
        for (int k = 0; k < kItems; ++k) mine.value += pack[k];
      });
  const Sum all = block_reduce(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = all.value;
}

struct TwoPacks {
  Floats a;
  Floats b;
};

__global__ void __launch_bounds__(kBlockThreads)
    triad_kernel(const float* a, const float* b, float factor, float* to, std::int64_t count) {
  for_my_packs(
      count,
      [&](std::int64_t i) {
        return TwoPacks{Floats::load_once(a + i), Floats::load_once(b + i)};
      },
      [&](std::int64_t i, const TwoPacks& packs) {
        Floats sum;
#pragma unroll
        for (int k = 0; k < kItems; ++k) sum.set(k, fmaf(factor, packs.b[k], packs.a[k]));
        sum.store_once(to + i);
      });
}

LaunchShape shape_of(const CudaContext& cuda, std::int64_t count, std::initializer_list<const void*> arrays) {
  LOCKSTEP_CHECK(items_an_access(sizeof(float), count, arrays) == kItems, "arrays of whole accesses");
  return {.blocks = read_blocks(cuda, count)};
}

}  // namespace

std::int64_t read_blocks(const CudaContext& cuda, std::int64_t count) {
  constexpr std::int64_t kTile = std::int64_t{kBlockThreads} * kItems;
  return grid_blocks((count + kTile - 1) / kTile, cuda.num_multiprocessors());
}

void read_on_device(const CudaContext& cuda, const float* from, std::int64_t count, float* sums) {
  launch(cuda, "read", shape_of(cuda, count, {from}), read_kernel, from, count, sums);
}

void triad_on_device(const CudaContext& cuda, const float* a, const float* b, float factor, float* to,
                     std::int64_t count) {
  launch(cuda, "triad", shape_of(cuda, count, {a, b, to}), triad_kernel, a, b, factor, to, count);
}

}  // namespace lockstep::kernels
