#include "kernels/base/cuda_timing.h"

#include <atomic>
#include <initializer_list>
#include <new>

#include "core/device.h"
#include "core/error.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/base/cuda_sync.cuh"

namespace lockstep::kernels {

// Counters of closings, which only grow.
struct StreamGate::Words {
  std::uint64_t opened = 0;         // written by the host, polled by the kernel
  std::uint64_t lost_patience = 0;  // written by the kernel
};

namespace {

__global__ void gate_kernel(std::uint64_t* opened, std::uint64_t* lost_patience, std::uint64_t turn,
                            std::uint64_t patience_ns) {
  const std::uint64_t since = device_nanoseconds();
  while (load_relaxed(opened) < turn) {
    if (device_nanoseconds() - since > patience_ns) {
      store_release(lost_patience, turn, Reach::system);
      return;
    }
    give_way();
  }
}

}  // namespace

StreamGate::StreamGate(const CudaContext& cuda, std::chrono::nanoseconds patience)
    : cuda_(cuda),
      patience_ns_(static_cast<std::uint64_t>(patience.count())),
      words_(new (cuda.device().allocate_pinned(sizeof(Words))) Words) {}

StreamGate::~StreamGate() {
  try {
    open();
    cuda_.device().release_pinned(words_);
  } catch (const core::Error&) {
    // The device failed before; its memory is freed with the process.
  }
}

// Does not use launch(), which may wait for what it has launched.
void StreamGate::close() {
  ++turn_;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream_of(cuda_);
  core::check_cuda(
      cudaLaunchKernelEx(&config, gate_kernel, &words_->opened, &words_->lost_patience, turn_, patience_ns_),
      "the launch of a stream gate", cuda_.place());
}

void StreamGate::open() {
  std::atomic_ref(words_->opened).store(turn_, std::memory_order_release);
}

bool StreamGate::lost_patience() const {
  return std::atomic_ref(words_->lost_patience).load(std::memory_order_acquire) == turn_ && turn_ > 0;
}

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

void read_on_device(CudaContext& cuda, const float* from, std::int64_t count, float* sums) {
  launch(cuda, "read", shape_of(cuda, count, {from}), read_kernel, from, count, sums);
}

void triad_on_device(CudaContext& cuda, const float* a, const float* b, float factor, float* to, std::int64_t count) {
  launch(cuda, "triad", shape_of(cuda, count, {a, b, to}), triad_kernel, a, b, factor, to, count);
}

}  // namespace lockstep::kernels
