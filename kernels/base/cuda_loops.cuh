// The loops of CUDA kernels: over elements, where outputs at i depend only on inputs at i, and over the rows of a
// matrix; see row_layout().
#pragma once

#include <cstdint>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_instructions.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/base/view.h"

namespace lockstep::kernels {

// An elementwise operation is a struct of pointers and numbers with
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

// An operation for run_elementwise(): y[i] = kFunction(a[i], b[i]).
template <class T, float (*kFunction)(float, float)>
struct OfTwo {
  const T* a;
  const T* b;
  T* y;

  template <int kItems>
  struct Inputs {
    Pack<T, kItems> a;
    Pack<T, kItems> b;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    return {Pack<T, kItems>::load(a + first), Pack<T, kItems>::load(b + first)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> out;
#pragma unroll
    for (int i = 0; i < kItems; ++i) out.set(i, kFunction(in.a[i], in.b[i]));
    out.store(y + first);
  }
};

template <class T, float (*kFunction)(float, float)>
void run_of_two(CudaContext& cuda, const char* name, const In& a, const In& b, const Out& y, std::int64_t count) {
  run_elementwise<sizeof(T)>(cuda, name, OfTwo<T, kFunction>{a.as<T>(), b.as<T>(), y.as<T>()}, count,
                             items_an_access(sizeof(T), 0, {a.data, b.data, y.data}));
}

// Number of packs of a row that a lane holds in registers if a warp has a row.
template <int kItems>
inline constexpr int kWarpPacks = kWarpItems / kItems;

// Calls visit(k, first) for each pack of this lane: its number among the lane's packs, and its first element in the
// row.
template <int kItems, class Visit>
__device__ __forceinline__ void for_lane_packs(std::int64_t columns, Visit&& visit) {
  const int packs = static_cast<int>(columns) / kItems;
#pragma unroll
  for (int k = 0; k < kWarpPacks<kItems>; ++k) {
    const int pack = k * kWarpLanes + lane_index();
    if (pack < packs) visit(k, pack * kItems);
  }
}

// Calls use(first, load(first)) for each pack of this thread if a block has a row; rows have fewer than 2^31 elements.
template <int kItems, int kAhead = 4, class Load, class Use>
__device__ __forceinline__ void for_thread_packs(std::int64_t columns, Load&& load, Use&& use) {
  for_packs<kAhead>(static_cast<int>(threadIdx.x) * kItems, static_cast<int>(blockDim.x) * kItems,
                    static_cast<int>(columns), load, use);
}

// Calls visit(row) for the rows of this warp, or of this block.
template <class Visit>
__device__ __forceinline__ void for_warp_rows(std::int64_t rows, Visit&& visit) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kWarpsPerBlock;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarpsPerBlock + warp_index(); row < rows; row += stride)
    visit(row);
}
template <class Visit>
__device__ __forceinline__ void for_block_rows(std::int64_t rows, Visit&& visit) {
  const unsigned sharers = cluster_blocks();
  for (std::int64_t row = blockIdx.x / sharers; row < rows; row += gridDim.x / sharers) visit(row);
}

// The part of a row that this block computes if its cluster shares the row; see slice_columns().
struct RowSlice {
  std::int64_t begin;
  int columns;
};
template <int kItems>
__device__ __forceinline__ RowSlice row_slice(std::int64_t columns) {
  const int sharers = static_cast<int>(cluster_blocks());
  if (sharers == 1) return {0, static_cast<int>(columns)};
  const int packs = static_cast<int>(columns) / kItems;
  const int share = (packs + sharers - 1) / sharers;
  const int begin = min(share * static_cast<int>(cluster_rank()), packs);
  return {std::int64_t{begin} * kItems, min(share, packs - begin) * kItems};
}

// block_reduce() over all threads that share a row, in one block or in all blocks of a cluster. Every thread makes one,
// before its first row. Blocks of a cluster store their values to each other's shared memory and wait for those of the
// others, once each time. Two places take turns: a block that stores to one again has passed the wait for the other, so
// all blocks have read the first.
template <class V>
class RowReduction {
 public:
  __device__ __forceinline__ RowReduction() : sharers_(cluster_blocks()) {
    if (sharers_ == 1) return;
    if (threadIdx.x < 2) begin_barrier(&exchange().barriers[threadIdx.x], sharers_);
    meet_cluster();
  }
  __device__ __forceinline__ V operator()(V value) {
    value = block_reduce(value);
    if (sharers_ == 1) return value;
    const unsigned place = turn_ % 2;
    const auto peer = static_cast<unsigned>(lane_index());
    V* const values = exchange().values(place);
    if (warp_index() == 0 && peer < sharers_) {
      *shared_of_peer(values + cluster_rank(), peer) = value;
      arrive_at_peer(&exchange().barriers[place], peer);
    }
    wait_for_peers(&exchange().barriers[place], turn_ / 2 % 2);
    ++turn_;
    return warp_reduce(peer < sharers_ ? values[peer] : V{});
  }

 private:
  static constexpr unsigned kMostSharers = 8;
  struct Exchange {
    std::uint64_t barriers[2];
    alignas(16) unsigned char memory[2 * kMostSharers * sizeof(V)];
    __device__ __forceinline__ V* values(unsigned place) { return reinterpret_cast<V*>(memory) + place * kMostSharers; }
  };
  __device__ __forceinline__ static Exchange& exchange() {
    __shared__ Exchange of_block;
    return of_block;
  }

  unsigned sharers_;
  unsigned turn_ = 0;
};

// Returns the dynamic shared memory of a block as an array of T.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

// Keeps the elements of a row that a block's threads have read, from element `first` of its shared memory on. Each
// thread reads back only what it wrote itself, so no barrier is needed. A block without a stash reads the row from
// memory again.
template <class T, bool kStashed>
class Stash {
 public:
  __device__ explicit Stash(std::int64_t first = 0) : first_(first) {}

  template <int kItems>
  __device__ __forceinline__ void keep(std::int64_t at, const Pack<T, kItems>& pack) const {
    if constexpr (kStashed) pack.store(dynamic_shared<T>() + first_ + at);
  }
  template <int kItems>
  __device__ __forceinline__ Pack<T, kItems> load_again(const T* row, std::int64_t at) const {
    if constexpr (kStashed) return Pack<T, kItems>::load(dynamic_shared<T>() + first_ + at);
    return Pack<T, kItems>::load(row + at);
  }

 private:
  std::int64_t first_;
};

}  // namespace lockstep::kernels
