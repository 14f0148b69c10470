#include <algorithm>
#include <string>

#include "core/error.h"
#include "kernels/attention_decode/attention_decode.h"
#include "kernels/attention_decode/decode_block.cuh"
#include "kernels/attention_decode/decode_tiles.h"
#include "kernels/base/cuda_loops.cuh"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kLaneElems = 8;  // elements of a row per lane
// Number of tokens whose keys and values are in flight to a lane: as many as registers hold (ptxas spills nothing).
template <int kRows>
constexpr int kTokensAtOnce = kRows > 4 ? 2 : 4;
constexpr std::int64_t kMostColumns = std::int64_t{kWarpLanes} * kLaneElems;
constexpr std::int64_t kLeastPart = 128;  // tokens: for fewer, merging costs more than another block gains
constexpr std::int64_t kMostPart = 4096;  // tokens: their blocks' numbers fit in shared memory

// Returns the value that is subtracted from scores: 0 while no token has been seen, because -infinity minus itself is
// NaN.
__device__ __forceinline__ float finite_maximum(float maximum) {
  return maximum == -INFINITY ? 0.0F : maximum;
}

// A row's maximum of scores, its sum of weights relative to that, and this lane's elements of its weighted sum of
// values.
struct RowState {
  float maximum = -INFINITY;
  float sum = 0;
  float o[kLaneElems] = {};

  // Merges the state that other lanes or warps have for other tokens.
  __device__ __forceinline__ void add(float other_maximum, float other_sum, const float (&other_o)[kLaneElems]) {
    const float top = fmaxf(maximum, other_maximum);
    const float shift = finite_maximum(top);
    const float mine = expf(maximum - shift);
    const float theirs = expf(other_maximum - shift);
    sum = __fadd_rn(__fmul_rn(sum, mine), __fmul_rn(other_sum, theirs));
#pragma unroll
    for (int i = 0; i < kLaneElems; ++i) o[i] = __fadd_rn(__fmul_rn(o[i], mine), __fmul_rn(other_o[i], theirs));
    maximum = top;
  }
};

// The lanes that share a token's row: the smallest power of two that holds the whole row.
struct Lanes {
  int count;
  __device__ explicit Lanes(std::int64_t columns) : count(1) {
    while (std::int64_t{count} * kLaneElems < columns) count *= 2;
  }
  __device__ __forceinline__ int lane() const { return lane_index() % count; }
  __device__ __forceinline__ int group() const { return static_cast<int>(threadIdx.x) / count; }
  __device__ __forceinline__ int groups() const { return kThreads / count; }
  __device__ __forceinline__ float sum(float value) const {
    for (int mask = count / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
  }
  // The first element of this lane's i-th pack.
  template <int kItems>
  __device__ __forceinline__ std::int64_t first(int pack) const {
    return (std::int64_t{pack} * count + lane()) * kItems;
  }
};

// Loads this lane's elements of a row, with zeros past the row's end.
template <class T, int kItems>
struct LaneRow {
  static constexpr int kPacks = kLaneElems / kItems;
  Pack<T, kItems> packs[kPacks];

  __device__ __forceinline__ void load(const T* row, std::int64_t columns, const Lanes& lanes) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t first = lanes.template first<kItems>(p);
      if (first < columns) packs[p] = Pack<T, kItems>::load(row + first);
    }
  }
  __device__ __forceinline__ void widen(float (&values)[kLaneElems], std::int64_t columns, const Lanes& lanes) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const bool within = lanes.template first<kItems>(p) < columns;
#pragma unroll
      for (int i = 0; i < kItems; ++i) values[p * kItems + i] = within ? packs[p][i] : 0.0F;
    }
  }
};

// Computes the scores of a few tokens from t on and adds their contribution to the rows. Tokens that a row does not
// see, from its limit on, score -infinity.
template <class T, int kItems, int kRows>
__device__ __forceinline__ void take_tokens(const DecodeOperands<T>& args, const DecodeBlock& block, const Lanes& lanes,
                                            const std::int32_t* blocks, std::int64_t t,
                                            const float (&q)[kRows][kLaneElems], const std::int64_t (&limits)[kRows],
                                            RowState (&rows)[kRows]) {
  constexpr int kTokens = kTokensAtOnce<kRows>;
  const std::int64_t columns = args.shape.head_columns;
  LaneRow<T, kItems> k[kTokens];
  LaneRow<T, kItems> v[kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (t + n >= block.end) continue;
    const std::int64_t at = offset_of(args, block, blocks, t + n);
    k[n].load(args.k + at, columns, lanes);
    v[n].load(args.v + at, columns, lanes);
  }
  float scores[kRows][kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    float key[kLaneElems];
    k[n].widen(key, columns, lanes);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float product = 0;
#pragma unroll
      for (int i = 0; i < kLaneElems; ++i) product += key[i] * q[r][i];
      product = lanes.sum(product);
      scores[r][n] = t + n < limits[r] ? product : -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float top = rows[r].maximum;
#pragma unroll
    for (int n = 0; n < kTokens; ++n) top = fmaxf(top, scores[r][n]);
    const float shift = finite_maximum(top);
    const float kept = expf(rows[r].maximum - shift);
    rows[r].maximum = top;
    rows[r].sum *= kept;
#pragma unroll
    for (int i = 0; i < kLaneElems; ++i) rows[r].o[i] *= kept;
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      scores[r][n] = expf(scores[r][n] - shift);
      rows[r].sum += scores[r][n];
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (t + n >= block.end) continue;
    float value[kLaneElems];
    v[n].widen(value, columns, lanes);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kLaneElems; ++i) rows[r].o[i] += scores[r][n] * value[i];
    }
  }
}

// Merges the states of all groups of lanes; the lanes of the first group then have the result.
__device__ __forceinline__ void merge_groups(RowState& row, const Lanes& lanes) {
  for (int mask = kWarpLanes / 2; mask >= lanes.count; mask /= 2) {
    float other[kLaneElems];
    const float maximum = __shfl_xor_sync(kAllLanes, row.maximum, mask);
    const float sum = __shfl_xor_sync(kAllLanes, row.sum, mask);
#pragma unroll
    for (int i = 0; i < kLaneElems; ++i) other[i] = __shfl_xor_sync(kAllLanes, row.o[i], mask);
    row.add(maximum, sum, other);
  }
  struct OfWarp {
    float maximum[kWarpLanes];
    float sum[kWarpLanes];
    float o[kLaneElems][kWarpLanes];
  };
  __shared__ OfWarp of_warps[kWarps];
  const int lane = lane_index();
  OfWarp& mine = of_warps[warp_index()];
  __syncthreads();  // the previous row may still be being read
  mine.maximum[lane] = row.maximum;
  mine.sum[lane] = row.sum;
#pragma unroll
  for (int i = 0; i < kLaneElems; ++i) mine.o[i][lane] = row.o[i];
  __syncthreads();
  if (warp_index() != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    float other[kLaneElems];
#pragma unroll
    for (int i = 0; i < kLaneElems; ++i) other[i] = of_warps[w].o[i][lane];
    row.add(of_warps[w].maximum[lane], of_warps[w].sum[lane], other);
  }
}

// Calls visit(element of the row, element of the lane) for the lane's elements that the row has.
template <int kItems, class Visit>
__device__ __forceinline__ void for_lane_elems(std::int64_t columns, const Lanes& lanes, Visit&& visit) {
#pragma unroll
  for (int p = 0; p < kLaneElems / kItems; ++p) {
    const std::int64_t first = lanes.template first<kItems>(p);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (first < columns) visit(first + i, p * kItems + i);
    }
  }
}

template <class T, int kItems>
__device__ __forceinline__ void put_row(const DecodeOperands<T>& args, const DecodeBlock& block, std::int64_t row,
                                        const RowState& state, const Lanes& lanes) {
  const std::int64_t columns = args.shape.head_columns;
  if (args.parts == 1) {
    T* const o = args.o + query_offset(args, row);
    for_lane_elems<kItems>(columns, lanes, [&](std::int64_t c, int i) { o[c] = from_f32<T>(state.o[i] / state.sum); });
    if (threadIdx.x == 0) args.lse[row] = finite_maximum(state.maximum) + logf(state.sum);
    return;
  }
  const std::int64_t slot = row * args.parts + block.part;
  float* const o = args.part_o + slot * columns;
  for_lane_elems<kItems>(columns, lanes, [&](std::int64_t c, int i) { o[c] = state.o[i]; });
  if (threadIdx.x != 0) return;
  args.part_sums[2 * slot] = state.maximum;
  args.part_sums[2 * slot + 1] = state.sum;
}

// Several lanes share a token's row. Groups of lanes take a few tokens each in turn and keep maxima, sums and their
// part of the result in registers: no thread waits for another before the end of the part of the context. Each key and
// value is read once for kRows rows.
template <class T, int kItems, int kRows>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeOperands<T> args) {
  const DecodeBlock block = decode_block_of(args, blockIdx.x, kRows);
  if (block.begin >= block.length && block.part > 0) return;
  const Lanes lanes(args.shape.head_columns);
  auto* const blocks = dynamic_shared<std::int32_t>();
  if (args.table != nullptr) {
    const std::int32_t* const table = table_of(args, block);
    for (std::int64_t i = threadIdx.x; block.begin + i * args.cache.block < block.end; i += kThreads) {
      blocks[i] = table[i];
    }
    __syncthreads();
  }
  const std::int64_t row = first_row_of(args, block);
  const std::int64_t num_rows = args.piece_rows - block.first_row;
  float q[kRows][kLaneElems];
  std::int64_t limits[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    LaneRow<T, kItems> query;
    if (r < num_rows) query.load(args.q + query_offset(args, row + r), args.shape.head_columns, lanes);
    query.widen(q[r], r < num_rows ? args.shape.head_columns : 0, lanes);
#pragma unroll
    for (int i = 0; i < kLaneElems; ++i) q[r][i] *= args.factor;
    limits[r] = limit_of(args, block, r);
  }
  RowState rows[kRows];
  constexpr int kTokens = kTokensAtOnce<kRows>;
  const std::int64_t first = block.begin + std::int64_t{lanes.group()} * kTokens;
  const std::int64_t stride = std::int64_t{lanes.groups()} * kTokens;
  const std::int64_t turns =
      (block.end - block.begin + stride - 1) / stride;  // the same for all groups: lanes of a warp stay converged
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    take_tokens<T, kItems, kRows>(args, block, lanes, blocks, first + turn * stride, q, limits, rows);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= num_rows) break;
    merge_groups(rows[r], lanes);
    if (static_cast<int>(threadIdx.x) < lanes.count) put_row<T, kItems>(args, block, row + r, rows[r], lanes);
  }
}

// One warp per row: merges its parts' maxima and sums, then its columns.
template <class T>
__global__ void __launch_bounds__(kBlockThreads) merge_kernel(DecodeOperands<T> args) {
  const std::int64_t columns = args.shape.head_columns;
  for_warp_rows(args.shape.sequences * args.shape.queries * args.shape.heads, [&](std::int64_t row) {
    const std::int64_t length = args.lengths[row / args.shape.queries / args.shape.heads];
    const std::int64_t parts = (min(length, args.shape.most_keys) + args.part_tokens - 1) / args.part_tokens;
    const float* const sums = args.part_sums + 2 * row * args.parts;
    Maximum top;
    for (std::int64_t p = lane_index(); p < parts; p += kWarpLanes) top.value = fmaxf(top.value, sums[2 * p]);
    const float shift = finite_maximum(warp_reduce(top).value);
    Sum sum;
    for (std::int64_t p = lane_index(); p < parts; p += kWarpLanes) {
      sum.value += sums[2 * p + 1] * expf(sums[2 * p] - shift);
    }
    const float total = warp_reduce(sum).value;
    if (lane_index() == 0) args.lse[row] = shift + logf(total);
    const float* const part_o = args.part_o + row * args.parts * columns;
    T* const o = args.o + query_offset(args, row);
    for (std::int64_t c = lane_index(); c < columns; c += kWarpLanes) {
      float added = 0;
      for (std::int64_t p = 0; p < parts; ++p) added += part_o[p * columns + c] * expf(sums[2 * p] - shift);
      o[c] = from_f32<T>(added / total);
    }
  });
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Divides contexts into parts: enough for a few waves of blocks, but no smaller than is worthwhile.
void divide(const DecodeShape& s, std::int64_t block_tokens, std::int64_t blocks_per_part, int num_multiprocessors,
            std::int64_t& parts, std::int64_t& part_tokens) {
  constexpr std::int64_t kBlocksPerMultiprocessor = 16;  // their registers allow 4 to run at a time
  const std::int64_t wanted = ceil_div(kBlocksPerMultiprocessor * num_multiprocessors, blocks_per_part);
  const std::int64_t most = ceil_div(s.most_keys, kLeastPart);
  const std::int64_t least = ceil_div(s.most_keys, kMostPart);
  const std::int64_t tokens = ceil_div(s.most_keys, std::clamp(wanted, least, most));
  part_tokens = ceil_div(tokens, block_tokens) * block_tokens;
  parts = ceil_div(s.most_keys, part_tokens);
}

// Calls queue(operands, blocks, entries of the table per part), which computes the parts, `rows` rows of a head of keys
// per block, and merges these.
template <class T, class Queue>
void run_parts(const AttentionDecode& args, std::int64_t rows, CudaContext& cuda, Queue&& queue) {
  const DecodeShape& s = args.shape;
  DecodeOperands<T> operands = decode_operands<T>(args, rows);
  const std::int64_t blocks_per_part = s.sequences * s.kv_heads * operands.chunks;
  divide(s, s.paged() ? s.block : 1, blocks_per_part, cuda.num_multiprocessors(), operands.parts, operands.part_tokens);
  if (operands.parts > 1) {
    WorkspacePlan plan;
    const auto slots = static_cast<std::size_t>(s.rows() * operands.parts);
    const std::size_t o_at = plan.add(slots * static_cast<std::size_t>(s.head_columns) * sizeof(float));
    const std::size_t sums_at = plan.add(slots * 2 * sizeof(float));
    auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes()));
    operands.part_o = reinterpret_cast<float*>(memory + o_at);
    operands.part_sums = reinterpret_cast<float*>(memory + sums_at);
  }
  queue(operands, blocks_per_part * operands.parts, s.paged() ? ceil_div(operands.part_tokens, s.block) : 0);
  if (operands.parts == 1) return;
  launch(cuda, "attention_decode merge",
         {.blocks = grid_blocks(ceil_div(s.rows(), kWarpsPerBlock), cuda.num_multiprocessors())}, merge_kernel<T>,
         operands);
}

template <class T, int kItems, int kRows>
void run_rows(const AttentionDecode& args, CudaContext& cuda) {
  run_parts<T>(args, kRows, cuda, [&](const DecodeOperands<T>& operands, std::int64_t blocks, std::int64_t entries) {
    launch(cuda, "attention_decode",
           {.blocks = blocks,
            .threads = kThreads,
            .shared_bytes = static_cast<std::size_t>(entries) * sizeof(std::int32_t)},
           decode_kernel<T, kItems, kRows>, operands);
  });
}

template <class T>
void run_tiles(const AttentionDecode& args, CudaContext& cuda) {
  run_parts<T>(args, kDecodeTileRows, cuda,
               [&](const DecodeOperands<T>& operands, std::int64_t blocks, std::int64_t entries) {
                 queue_decode_tiles(operands, blocks, entries, cuda);
               });
}

}  // namespace

// Rows of a head of keys are processed 16 at a time on tensor cores, otherwise 1, 4 or 8 at a time, or one by one if
// 16-byte accesses are not possible.
void run_cuda(const AttentionDecode& args, CudaContext& cuda) {
  const DecodeShape& s = args.shape;
  check_at_most("attention_decode on CUDA", "head_columns", s.head_columns, kMostColumns);
  with_cuda_activation_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWide = static_cast<int>(kAccessBytes / sizeof(T));
    const std::int64_t rows = s.group() * s.queries;
    if constexpr (sizeof(T) == 2) {
      if (takes_decode_tiles(args, cuda)) return run_tiles<T>(args, cuda);
    }
    if (items_an_access(sizeof(T), s.head_columns, {args.q.data, args.k.data, args.v.data}) == 1) {
      run_rows<T, 1, 1>(args, cuda);
    } else if (rows == 1) {
      run_rows<T, kWide, 1>(args, cuda);
    } else if (rows <= 4) {
      run_rows<T, kWide, 4>(args, cuda);
    } else {
      run_rows<T, kWide, 8>(args, cuda);
    }
  });
}

}  // namespace lockstep::kernels
