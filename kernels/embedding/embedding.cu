#include "kernels/base/cuda_rows.cuh"
#include "kernels/embedding/embedding.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct Lookup {
  std::int64_t tokens;
  std::int64_t length;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t first_id;
  const std::int32_t* ids;
  const T* table;
  const T* positions;  // null if there are none
  T* y;
};

// One warp computes one token.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) lookup_kernel(Lookup<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  for_warp_rows(args.tokens, [&](std::int64_t token) {
    const std::int64_t id = args.ids[token] - args.first_id;
    const T* const from = id >= 0 && id < args.rows ? args.table + id * args.columns : nullptr;
    const T* const position = args.length > 0 ? args.positions + token % args.length * args.columns : nullptr;
    T* const y = args.y + token * args.columns;
    for_packs<4>(
        std::int64_t{lane_index()} * kItems, std::int64_t{kWarpLanes} * kItems, args.columns,
        [&](std::int64_t c) { return from == nullptr ? RowPack{} : RowPack::load(from + c); },
        [&](std::int64_t c, RowPack pack) {
          if (position != nullptr) {
            const RowPack other = RowPack::load(position + c);
#pragma unroll
            for (int i = 0; i < kItems; ++i) pack.set(i, pack[i] + other[i]);
          }
          pack.store(y + c);
        });
  });
}

// The backward adds the tokens of each table row in their order, without sorting all tokens: it counts the tokens of
// each row, reserves a range of a list for each row, fills the list, and then sorts the few tokens of each row by
// counting, for each of them, how many come before it. Atomics increment integer counters only, in any order:
// they decide where data lies in the workspace, but never the order in which numbers are added.
//
// Rows with many tokens (a common word) are cut into segments that different warps add at the same time; the sums of
// the segments are then added in their order.
constexpr std::int32_t kSegment = 32;  // tokens

struct RowLists {
  std::int64_t tokens;
  std::int64_t rows;
  std::int64_t first_id;
  const std::int32_t* ids;

  std::int32_t* counts;          // [rows] number of tokens; zero on entry
  std::int32_t* cursors;         // [2] ends of the list and of the segments in use; zero on entry
  std::int32_t* begins;          // [rows] first index in the list; set for rows that have tokens
  std::int32_t* first_segments;  // [rows] first segment; set for rows with more than one
  std::int32_t* slots;   // [tokens] index among the tokens of the row: first in any order, then in the tokens' order
  std::int32_t* list;    // [tokens], row by row, in any order
  std::int32_t* sorted;  // [tokens], row by row, in the tokens' order

  // Returns -1 if the token is not in this table.
  __device__ __forceinline__ std::int64_t row_of(std::int64_t token) const {
    const std::int64_t row = ids[token] - first_id;
    return row >= 0 && row < rows ? row : -1;
  }
};

// Calls visit(token, row) for those tokens of this thread that are in the table.
template <class Visit>
__device__ __forceinline__ void for_known_tokens(const RowLists& lists, Visit&& visit) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads;
  for (std::int64_t n = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; n < lists.tokens; n += stride) {
    const std::int64_t row = lists.row_of(n);
    if (row >= 0) visit(n, row);
  }
}

__global__ void __launch_bounds__(kBlockThreads) count_kernel(RowLists lists) {
  wait_for_stream();
  for_known_tokens(
      lists, [&](std::int64_t token, std::int64_t row) { lists.slots[token] = atomicAdd(lists.counts + row, 1); });
}

__global__ void __launch_bounds__(kBlockThreads) place_kernel(RowLists lists) {
  wait_for_stream();
  for_known_tokens(lists, [&](std::int64_t token, std::int64_t row) {
    if (lists.slots[token] != 0) return;
    const std::int32_t count = lists.counts[row];
    lists.begins[row] = atomicAdd(lists.cursors, count);
    if (count > kSegment) lists.first_segments[row] = atomicAdd(lists.cursors + 1, (count + kSegment - 1) / kSegment);
  });
}

__global__ void __launch_bounds__(kBlockThreads) list_kernel(RowLists lists) {
  wait_for_stream();
  for_known_tokens(lists, [&](std::int64_t token, std::int64_t row) {
    lists.list[lists.begins[row] + lists.slots[token]] = static_cast<std::int32_t>(token);
  });
}

__global__ void __launch_bounds__(kBlockThreads) sort_kernel(RowLists lists) {
  wait_for_stream();
  for_known_tokens(lists, [&](std::int64_t token, std::int64_t row) {
    const std::int32_t* const others = lists.list + lists.begins[row];
    const std::int32_t count = lists.counts[row];
    std::int32_t before = 0;
#pragma unroll 8
    for (std::int32_t k = 0; k < count; ++k) before += others[k] < token ? 1 : 0;
    lists.slots[token] = before;
    lists.sorted[lists.begins[row] + before] = static_cast<std::int32_t>(token);
  });
}

template <class T>
struct Gradients {
  std::int64_t columns;
  const T* dy;
  float* dtable;
  float* segments;  // [segments][columns]
};

template <int kItems>
using Floats = Pack<float, kItems>;

template <int kItems>
__device__ __forceinline__ void add_to(float* to, const float (&sum)[kItems]) {
  auto total = Floats<kItems>::load(to);
#pragma unroll
  for (int i = 0; i < kItems; ++i) total.items[i] += sum[i];
  total.store(to);
}

template <class T, int kItems>
__device__ __forceinline__ void add_pack(float (&sum)[kItems], const Pack<T, kItems>& pack) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) sum[i] += pack[i];
}

// One warp adds one segment: the warp of the segment's first token.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) add_segments_kernel(RowLists lists, Gradients<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  for_warp_rows(lists.tokens, [&](std::int64_t token) {
    const std::int64_t row = lists.row_of(token);
    if (row < 0 || lists.slots[token] % kSegment != 0) return;
    const std::int32_t slot = lists.slots[token];
    const std::int32_t count = lists.counts[row];
    const std::int32_t* const tokens = lists.sorted + lists.begins[row] + slot;
    const std::int32_t num_tokens = min(kSegment, count - slot);
    for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < args.columns;
         c += std::int64_t{kWarpLanes} * kItems) {
      float sum[kItems] = {};
      for_packs<4>(
          0, 1, num_tokens, [&](std::int64_t k) { return RowPack::load(args.dy + tokens[k] * args.columns + c); },
          [&](std::int64_t, const RowPack& pack) { add_pack(sum, pack); });
      if (count <= kSegment) {
        add_to(args.dtable + row * args.columns + c, sum);
      } else {
        Floats<kItems> part;
#pragma unroll
        for (int i = 0; i < kItems; ++i) part.items[i] = sum[i];
        part.store(args.segments + (lists.first_segments[row] + slot / kSegment) * args.columns + c);
      }
    }
  });
}

// One warp joins the segments of one row: the warp of the row's first token.
template <int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    join_segments_kernel(RowLists lists, std::int64_t columns, const float* segments, float* dtable) {
  wait_for_stream();
  for_warp_rows(lists.tokens, [&](std::int64_t token) {
    const std::int64_t row = lists.row_of(token);
    if (row < 0 || lists.slots[token] != 0 || lists.counts[row] <= kSegment) return;
    const std::int64_t num_segments = (lists.counts[row] + kSegment - 1) / kSegment;
    const float* const first = segments + lists.first_segments[row] * columns;
    for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < columns; c += std::int64_t{kWarpLanes} * kItems) {
      float sum[kItems] = {};
      for_packs<4>(
          0, 1, num_segments, [&](std::int64_t s) { return Floats<kItems>::load(first + s * columns + c); },
          [&](std::int64_t, const Floats<kItems>& pack) { add_pack(sum, pack); });
      add_to(dtable + row * columns + c, sum);
    }
  });
}

// One warp adds the tokens of one position, one token per sequence, in their order.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    add_positions_kernel(std::int64_t tokens, std::int64_t length, std::int64_t columns, const T* dy,
                         float* dpositions) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  for_warp_rows(min(length, tokens), [&](std::int64_t position) {
    for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < columns; c += std::int64_t{kWarpLanes} * kItems) {
      float sum[kItems] = {};
      for_packs<4>(
          position, length, tokens, [&](std::int64_t n) { return RowPack::load(dy + n * columns + c); },
          [&](std::int64_t, const RowPack& pack) { add_pack(sum, pack); });
      add_to(dpositions + position * columns + c, sum);
    }
  });
}

struct BackwardMemory {
  RowLists lists;
  float* segments;
  std::size_t zeroed_bytes;  // from `counts` on
};

BackwardMemory backward_memory(const EmbeddingBackward& args, CudaContext& cuda) {
  const EmbeddingWorkspace plan = embedding_workspace(args.tokens, args.rows, args.columns, kSegment);
  auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes));
  const auto ints = [&](std::size_t offset) { return reinterpret_cast<std::int32_t*>(memory + offset); };
  return {{.tokens = args.tokens,
           .rows = args.rows,
           .first_id = args.first_id,
           .ids = args.ids.as<std::int32_t>(),
           .counts = ints(plan.counts),
           .cursors = ints(plan.cursors),
           .begins = ints(plan.begins),
           .first_segments = ints(plan.first_segments),
           .slots = ints(plan.slots),
           .list = ints(plan.list),
           .sorted = ints(plan.sorted)},
          reinterpret_cast<float*>(memory + plan.segments),
          plan.begins - plan.counts};
}

void make_lists(const RowLists& lists, std::size_t zeroed_bytes, CudaContext& cuda) {
  core::check_cuda(cudaMemsetAsync(lists.counts, 0, zeroed_bytes, stream_of(cuda)), "cudaMemsetAsync", cuda.place());
  const LaunchShape shape{
      .blocks = grid_blocks((lists.tokens + kBlockThreads - 1) / kBlockThreads, cuda.num_multiprocessors())};
  launch_early(cuda, "embedding_bwd", shape, count_kernel, lists);
  launch_early(cuda, "embedding_bwd", shape, place_kernel, lists);
  launch_early(cuda, "embedding_bwd", shape, list_kernel, lists);
  launch_early(cuda, "embedding_bwd", shape, sort_kernel, lists);
}

LaunchShape warps_for(std::int64_t rows, const CudaContext& cuda) {
  return {.blocks = grid_blocks((rows + kWarpsABlock - 1) / kWarpsABlock, cuda.num_multiprocessors())};
}

template <class T, int kItems>
void backward(const EmbeddingBackward& args, const BackwardMemory& memory, CudaContext& cuda) {
  auto* const dtable = args.dtable.as<float>();
  const Gradients<T> gradients{args.columns, args.dy.as<T>(), dtable, memory.segments};
  launch_early(cuda, "embedding_bwd", warps_for(args.tokens, cuda), add_segments_kernel<T, kItems>, memory.lists,
               gradients);
  launch_early(cuda, "embedding_bwd", warps_for(args.tokens, cuda), join_segments_kernel<kItems>, memory.lists,
               args.columns, memory.segments, dtable);
  if (args.length == 0) return;
  launch_early(cuda, "embedding_bwd", warps_for(args.length, cuda), add_positions_kernel<T, kItems>, args.tokens,
               args.length, args.columns, args.dy.as<T>(), args.dpositions.as<float>());
}

}  // namespace

void run_cuda(const EmbeddingForward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.table.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lookup<T> lookup{args.tokens,        args.length,
                           args.rows,          args.columns,
                           args.first_id,      args.ids.as<std::int32_t>(),
                           args.table.as<T>(), args.positions.as<T>(),
                           args.y.as<T>()};
    const int items = items_an_access(sizeof(T), args.columns, {args.table.data, args.positions.data, args.y.data});
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      launch_early(cuda, "embedding_fwd", warps_for(args.tokens, cuda), lookup_kernel<T, decltype(constant)::value>,
                   lookup);
    });
  });
}

void run_cuda(const EmbeddingBackward& args, CudaContext& cuda) {
  const BackwardMemory memory = backward_memory(args, cuda);
  make_lists(memory.lists, memory.zeroed_bytes, cuda);
  with_cuda_activation_type(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), args.columns, {args.dy.data, args.dtable.data, args.dpositions.data});
    with_items<kAccessBytes / sizeof(T)>(
        items, [&](auto constant) { backward<T, decltype(constant)::value>(args, memory, cuda); });
  });
}

}  // namespace lockstep::kernels
