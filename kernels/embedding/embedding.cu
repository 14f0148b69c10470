#include <type_traits>

#include "kernels/base/cuda_loops.cuh"
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

// The backward adds the tokens of each table row in their order, in two kernels. The first one, a single cluster, makes
// lists: it counts the tokens of each row, reserves a range of a list for each row, fills the list, and sorts the
// tokens of each row. The second one adds. Atomics increment integer counters only, in any order: they decide where
// data lies in the workspace, but never the order in which numbers are added.
//
// Rows with many tokens (a common word) are cut into segments that different warps add at the same time; the warp that
// finishes last adds the sums of the segments in their order.
constexpr std::int32_t kSegment = 32;     // tokens
constexpr std::int32_t kFewTokens = 256;  // per row, up to which each token is compared with all others to sort them
constexpr int kListThreads = kMostWarps * kWarpLanes;  // per block of the cluster

struct RowLists {
  std::int64_t tokens;
  std::int64_t rows;
  std::int64_t first_id;
  const std::int32_t* ids;

  std::int32_t* counts;          // [rows] number of tokens; set, like all [rows], for rows that have tokens
  std::int32_t* begins;          // [rows] first index in the list
  std::int32_t* first_segments;  // [rows] first segment; set for rows with more than one
  std::int32_t* ended;           // [rows] number of segments that have been added
  std::int32_t* cursors;         // [3] ends of the list, of the segments and of `long_rows`
  std::int32_t* slots;      // [tokens] index among the tokens of the row: first in any order, then in the tokens' order
  std::int32_t* list;       // [tokens], row by row, in any order
  std::int32_t* sorted;     // [tokens], row by row, in the tokens' order
  std::int32_t* long_rows;  // [tokens / kFewTokens] rows with more than kFewTokens, in any order

  // Returns -1 if the token is not in this table.
  __device__ __forceinline__ std::int64_t row_of(std::int64_t token) const {
    const std::int64_t row = ids[token] - first_id;
    return row >= 0 && row < rows ? row : -1;
  }
};

// Calls visit(token, row) for those tokens of this thread that are in the table.
template <class Visit>
__device__ __forceinline__ void for_known_tokens(const RowLists& lists, Visit&& visit) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kListThreads;
  for (std::int64_t n = std::int64_t{blockIdx.x} * kListThreads + threadIdx.x; n < lists.tokens; n += stride) {
    const std::int64_t row = lists.row_of(n);
    if (row >= 0) visit(n, row);
  }
}

__device__ __forceinline__ void place_row(const RowLists& lists, std::int64_t row) {
  const std::int32_t count = lists.counts[row];
  lists.begins[row] = atomicAdd(lists.cursors, count);
  if (count > kSegment) lists.first_segments[row] = atomicAdd(lists.cursors + 1, (count + kSegment - 1) / kSegment);
  if (count > kFewTokens) lists.long_rows[atomicAdd(lists.cursors + 2, 1)] = static_cast<std::int32_t>(row);
}

__device__ __forceinline__ void put_in_order(const RowLists& lists, std::int64_t token, std::int64_t row,
                                             std::int32_t slot) {
  lists.slots[token] = slot;
  lists.sorted[lists.begins[row] + slot] = static_cast<std::int32_t>(token);
}

// For rows with few tokens: a token's index is the number of the row's tokens that come before it.
__device__ __forceinline__ void order_token(const RowLists& lists, std::int64_t token, std::int64_t row) {
  const std::int32_t* const others = lists.list + lists.begins[row];
  const std::int32_t count = lists.counts[row];
  if (count > kFewTokens) return;
  std::int32_t before = 0;
#pragma unroll 8
  for (std::int32_t k = 0; k < count; ++k) before += others[k] < token ? 1 : 0;
  put_in_order(lists, token, row, before);
}

// For a row with many tokens: the block scans all ids in order and numbers the row's tokens.
__device__ __forceinline__ void order_long_row(const RowLists& lists, std::int64_t row) {
  __shared__ std::int32_t of_warps[kMostWarps];
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < lists.tokens; first += kListThreads) {
    const std::int64_t token = first + threadIdx.x;
    const bool mine = token < lists.tokens && lists.row_of(token) == row;
    const unsigned lanes = __ballot_sync(kAllLanes, mine ? 1 : 0);
    if (lane_index() == 0) of_warps[warp_index()] = __popc(lanes);
    __syncthreads();
    std::int32_t slot = before + __popc(lanes & ((1U << lane_index()) - 1));
    for (int w = 0; w < kMostWarps; ++w) {
      if (w < warp_index()) slot += of_warps[w];
      before += of_warps[w];
    }
    if (mine) put_in_order(lists, token, row, slot);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kListThreads) lists_kernel(RowLists lists) {
  wait_for_stream();
  if (blockIdx.x == 0 && threadIdx.x < 3) lists.cursors[threadIdx.x] = 0;
  for_known_tokens(lists, [&](std::int64_t, std::int64_t row) { lists.counts[row] = lists.ended[row] = 0; });
  meet_cluster();
  for_known_tokens(
      lists, [&](std::int64_t token, std::int64_t row) { lists.slots[token] = atomicAdd(lists.counts + row, 1); });
  meet_cluster();
  for_known_tokens(lists, [&](std::int64_t token, std::int64_t row) {
    if (lists.slots[token] == 0) place_row(lists, row);
  });
  meet_cluster();
  for_known_tokens(lists, [&](std::int64_t token, std::int64_t row) {
    lists.list[lists.begins[row] + lists.slots[token]] = static_cast<std::int32_t>(token);
  });
  meet_cluster();
  for_known_tokens(lists, [&](std::int64_t token, std::int64_t row) { order_token(lists, token, row); });
  const std::int32_t num_long = lists.cursors[2];
  for (auto r = static_cast<std::int32_t>(blockIdx.x); r < num_long; r += static_cast<std::int32_t>(gridDim.x)) {
    order_long_row(lists, lists.long_rows[r]);
  }
}

template <class T>
struct Gradients {
  std::int64_t length;
  std::int64_t columns;
  const T* dy;
  float* dtable;
  float* dpositions;
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

// Sums up the rows row_at(0) .. row_at(count - 1) in this order, and calls use(first column, sums) for each pack of
// columns of this lane.
template <int kItems, class RowAt, class Use>
__device__ __forceinline__ void for_sums(std::int64_t columns, std::int64_t count, RowAt&& row_at, Use&& use) {
  using RowPack = Pack<std::remove_cv_t<std::remove_pointer_t<decltype(row_at(0))>>, kItems>;
  for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < columns; c += std::int64_t{kWarpLanes} * kItems) {
    float sum[kItems] = {};
    for_packs<4>(
        std::int64_t{0}, 1, count, [&](std::int64_t k) { return RowPack::load(row_at(k) + c); },
        [&](std::int64_t, const RowPack& pack) { add_pack(sum, pack); });
    use(c, sum);
  }
}

// Returns true in the warp that finishes last of those that add a row's segments; their stores are visible to it then.
__device__ __forceinline__ bool ends_row(std::int32_t* ended, std::int32_t num_segments) {
  __threadfence();
  __syncwarp();
  std::int32_t before = 0;
  if (lane_index() == 0) before = atomicAdd(ended, 1);
  const bool last = __ballot_sync(kAllLanes, before == num_segments - 1 ? 1 : 0) != 0;
  __threadfence();
  return last;
}

// Adds the segment that begins with this token, if there is one; the last warp of a row adds up the row's segments.
template <class T, int kItems>
__device__ __forceinline__ void add_segment(const RowLists& lists, const Gradients<T>& args, std::int64_t token) {
  const std::int64_t row = lists.row_of(token);
  if (row < 0 || lists.slots[token] % kSegment != 0) return;
  const std::int32_t slot = lists.slots[token];
  const std::int32_t count = lists.counts[row];
  const std::int32_t* const tokens = lists.sorted + lists.begins[row] + slot;
  float* const total = args.dtable + row * args.columns;
  const auto add_to_total = [&](std::int64_t c, const float(&sum)[kItems]) { add_to(total + c, sum); };
  const auto dy_of = [&](std::int64_t k) { return args.dy + tokens[k] * args.columns; };
  if (count <= kSegment) return for_sums<kItems>(args.columns, count, dy_of, add_to_total);
  const std::int32_t num_segments = (count + kSegment - 1) / kSegment;
  float* const parts = args.segments + lists.first_segments[row] * args.columns;
  float* const part = parts + slot / kSegment * args.columns;
  for_sums<kItems>(args.columns, min(kSegment, count - slot), dy_of, [&](std::int64_t c, const float(&sum)[kItems]) {
    Floats<kItems> pack;
#pragma unroll
    for (int i = 0; i < kItems; ++i) pack.items[i] = sum[i];
    pack.store(part + c);
  });
  if (!ends_row(lists.ended + row, num_segments)) return;
  for_sums<kItems>(
      args.columns, num_segments, [&](std::int64_t s) { return static_cast<const float*>(parts + s * args.columns); },
      add_to_total);
}

// One warp adds one segment: the warp of the segment's first token. One more warp per position adds its tokens, one
// token per sequence, in their order.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) add_kernel(RowLists lists, Gradients<T> args) {
  wait_for_stream();
  for_warp_rows(lists.tokens + min(args.length, lists.tokens), [&](std::int64_t n) {
    if (n < lists.tokens) return add_segment<T, kItems>(lists, args, n);
    const std::int64_t position = n - lists.tokens;
    for_sums<kItems>(
        args.columns, (lists.tokens - position + args.length - 1) / args.length,
        [&](std::int64_t k) { return args.dy + (position + k * args.length) * args.columns; },
        [&](std::int64_t c, const float(&sum)[kItems]) { add_to(args.dpositions + position * args.columns + c, sum); });
  });
}

struct BackwardMemory {
  RowLists lists;
  float* segments;
};

BackwardMemory backward_memory(const EmbeddingBackward& args, CudaContext& cuda) {
  const EmbeddingWorkspace plan = embedding_workspace(args.tokens, args.rows, args.columns, kSegment, kFewTokens);
  auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes));
  const auto ints = [&](std::size_t offset) { return reinterpret_cast<std::int32_t*>(memory + offset); };
  return {{.tokens = args.tokens,
           .rows = args.rows,
           .first_id = args.first_id,
           .ids = args.ids.as<std::int32_t>(),
           .counts = ints(plan.counts),
           .begins = ints(plan.begins),
           .first_segments = ints(plan.first_segments),
           .ended = ints(plan.ended),
           .cursors = ints(plan.cursors),
           .slots = ints(plan.slots),
           .list = ints(plan.list),
           .sorted = ints(plan.sorted),
           .long_rows = ints(plan.long_rows)},
          reinterpret_cast<float*>(memory + plan.segments)};
}

template <class T, int kItems>
void backward(const EmbeddingBackward& args, const BackwardMemory& memory, CudaContext& cuda) {
  const Gradients<T> gradients{
      args.length,    args.columns, args.dy.as<T>(), args.dtable.as<float>(), args.dpositions.as<float>(),
      memory.segments};
  launch_early(cuda, "embedding_bwd", warps_for(args.tokens + args.length, cuda), add_kernel<T, kItems>, memory.lists,
               gradients);
}

}  // namespace

void run_cuda(const EmbeddingForward& args, CudaContext& cuda) {
  with_packs(args.table.dtype, args.columns, {args.table.data, args.positions.data, args.y.data},
             [&](auto zero, auto items) {
               using T = decltype(zero);
               const Lookup<T> lookup{args.tokens,        args.length,
                                      args.rows,          args.columns,
                                      args.first_id,      args.ids.as<std::int32_t>(),
                                      args.table.as<T>(), args.positions.as<T>(),
                                      args.y.as<T>()};
               launch_early(cuda, "embedding_fwd", warps_for(args.tokens, cuda),
                            lookup_kernel<T, decltype(items)::value>, lookup);
             });
}

void run_cuda(const EmbeddingBackward& args, CudaContext& cuda) {
  const BackwardMemory memory = backward_memory(args, cuda);
  const int cluster = cuda.most_cluster_blocks();
  launch_early(cuda, "embedding_bwd", {.blocks = cluster, .threads = kListThreads, .cluster = cluster}, lists_kernel,
               memory.lists);
  with_packs(args.dy.dtype, args.columns, {args.dy.data, args.dtable.data, args.dpositions.data},
             [&](auto zero, auto items) { backward<decltype(zero), decltype(items)::value>(args, memory, cuda); });
}

}  // namespace lockstep::kernels
