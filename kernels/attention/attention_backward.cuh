// Backward of one block, without atomics: one block sums the gradient of a tile of queries over the keys that they see,
// another the gradients of a tile of keys and values over the queries that see them. Both recompute the probabilities p
// = exp(score - lse); with delta = sum over columns of o d_o, the gradient of the scores is p (d_o . v - delta). Dao
// 2023, section 3.1, makes one pass over keys that adds to dq by atomics: 5 products per tile instead of 3 and 4 here,
// but a result that depends on the order. A fixed order would need a dq in f32 for each block of keys (at length 1024,
// with 8 blocks of 128 keys of a causal head, 9 times the bytes of dq, written and read), or blocks that wait for each
// other.
#pragma once

#include "kernels/attention/attention_forward.cuh"

// Offsets in shared memory are small.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
namespace lockstep::kernels {

// Two numbers per query, adjacent in memory so that one copy loads both.
struct alignas(8) QueryNumbers {
  float lse;    // times log2 e
  float delta;  // sum over columns of o d_o
};

template <class T>
struct BackwardOperands {
  AttentionGeometry geometry;
  const T* q;
  const T* k;
  const T* v;
  const T* o;
  const float* lse;
  const T* d_o;
  T* dq;
  T* dk;
  T* dv;
  QueryNumbers* numbers;  // indexed like lse
};

// `numbers`: memory for the numbers of each query.
template <class T>
BackwardOperands<T> operands_for(const AttentionBackward& args, QueryNumbers* numbers) {
  return {geometry_of<T>(args.shape, {args.q.data, args.k.data, args.v.data, args.o.data, args.d_o.data, args.dq.data,
                                      args.dk.data, args.dv.data}),
          args.q.as<T>(),
          args.k.as<T>(),
          args.v.as<T>(),
          args.o.as<T>(),
          args.lse.as<float>(),
          args.d_o.as<T>(),
          args.dq.as<T>(),
          args.dk.as<T>(),
          args.dv.as<T>(),
          numbers};
}

// Adjacent elements of a row of o or d_o that a lane takes at once, and the number of lanes per row: a power of two.
template <class T, bool kWide>
struct alignas(kWide ? 16 : sizeof(T)) RowPiece {
  static constexpr int kElems = kWide ? 16 / static_cast<int>(sizeof(T)) : 1;
  T at[kElems];
};
template <class T>
__host__ __device__ int numbers_lanes(const AttentionGeometry& g) {
  const int pieces = g.wide ? g.head_columns / RowPiece<T, true>::kElems : g.head_columns;
  int lanes = 32;
  while (lanes / 2 >= pieces) lanes /= 2;
  return lanes;
}
template <class T>
std::int64_t numbers_blocks(const AttentionGeometry& g, std::int64_t num_rows) {
  const std::int64_t rows = kAttentionThreads / numbers_lanes<T>(g);
  return (num_rows + rows - 1) / rows;
}

// Returns a lane's part of the sum of o d_o over a row.
template <bool kWide, class Lane, class T>
__device__ float dot_of_row(const T* o, const T* d_o, int columns, int first, int lanes) {
  using Piece = RowPiece<T, kWide>;
  float sum = 0;
#pragma unroll 1
  for (int column = first * Piece::kElems; column < columns; column += lanes * Piece::kElems) {
    const Piece left = *reinterpret_cast<const Piece*>(o + column);
    const Piece right = *reinterpret_cast<const Piece*>(d_o + column);
#pragma unroll
    for (int i = 0; i < Piece::kElems; ++i) sum += Lane::widen(left.at[i]) * Lane::widen(right.at[i]);
  }
  return sum;
}

// Computes the numbers of some queries: rows (batch, query, head) of o and d_o, in order.
template <class Lane, class T>
__device__ void attention_numbers_block(Lane& lane, const BackwardOperands<T>& operands, int num_rows,
                                        std::int64_t block) {
  const AttentionGeometry& g = operands.geometry;
  const int lanes = numbers_lanes<T>(g);
  const auto row = static_cast<unsigned>(block * (kAttentionThreads / lanes) + lane.thread() / lanes);
  const bool there = row < static_cast<unsigned>(num_rows);
  const int first = lane.thread() % lanes;
  float sum = 0;
  if (there) {
    const T* const o = operands.o + std::int64_t{row} * g.head_columns;
    const T* const d_o = operands.d_o + std::int64_t{row} * g.head_columns;
    sum = g.wide ? dot_of_row<true, Lane>(o, d_o, g.head_columns, first, lanes)
                 : dot_of_row<false, Lane>(o, d_o, g.head_columns, first, lanes);
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) sum += lane.from_partner(sum, mask);
  if (!there || first != 0) return;
  const auto heads = static_cast<unsigned>(g.heads);
  const auto queries = static_cast<unsigned>(g.queries);
  const unsigned sequence = row / heads / queries * heads + row % heads;
  const std::int64_t at = std::int64_t{sequence} * queries + row / heads % queries;
  operands.numbers[at] = {kLog2E * operands.lse[at], sum};
}

// Bytes of shared memory: two tiles of the block's rows, two per stage, and the numbers of streamed queries.
template <class Tiles>
constexpr std::size_t backward_shared_bytes() {
  return sizeof(typename Tiles::Element) * Tiles::kStride * 2 * (Tiles::kRows + Tiles::kStages * Tiles::kStreamed) +
         sizeof(QueryNumbers) * Tiles::kStages * Tiles::kStreamed;
}

// Computes dq.
template <class Tiles, class Lane>
__device__ void attention_queries_block(Lane& lane, const BackwardOperands<typename Tiles::Value>& operands,
                                        std::int64_t block) {
  static_assert(Tiles::kSlices == 1);
  using Element = typename Tiles::Element;
  const AttentionGeometry& g = operands.geometry;
  const int tiles = tiles_of(g.queries, Tiles::kRows);
  BlockWork work = work_of_block(block, g.heads, tiles, 1);
  work.tile = tiles - 1 - work.tile;  // the last queries see the most keys: they start first
  const int first_query = work.tile * Tiles::kRows;
  const int past_query = first_query + Tiles::kRows < g.queries ? first_query + Tiles::kRows : g.queries;
  const auto keys = key_rows(operands.k, g, work.batch, work.head / g.group());
  const auto values = key_rows(operands.v, g, work.batch, work.head / g.group());

  constexpr int kStreamedElems = Tiles::kStreamed * Tiles::kStride;
  Element* const q_tile = static_cast<Element*>(lane.shared());
  Element* const d_o_tile = q_tile + Tiles::kRows * Tiles::kStride;
  Element* const streamed = d_o_tile + Tiles::kRows * Tiles::kStride;
  const int warp_row = lane.warp() * Tiles::kWarpRows;
  copy_tile<Tiles, Tiles::kRows>(lane, q_tile, query_rows(operands.q, g, work), first_query, g);
  copy_tile<Tiles, Tiles::kRows>(lane, d_o_tile, packed_rows(operands.d_o, g, work), first_query, g);

  QueryNumbers numbers[Tiles::kBands][2];
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + warp_row + 16 * m + sum_row(lane.lane(), 2 * half);
      numbers[m][half] = {INFINITY, 0};
      if (query < g.queries) numbers[m][half] = row_numbers(operands.numbers, g, work)[query];
    }
  }

  const float factor = g.scale * kLog2E;
  typename Tiles::Result dq = {};
  const auto copy = [&](int tile, int stage) {
    Element* const to = streamed + stage * 2 * kStreamedElems;
    copy_tile<Tiles, Tiles::kStreamed>(lane, to, keys, tile * Tiles::kStreamed, g);
    copy_tile<Tiles, Tiles::kStreamed>(lane, to + kStreamedElems, values, tile * Tiles::kStreamed, g);
  };
  const auto compute = [&](int tile, int stage) {
    // A warp has nothing to do if none of its queries sees these keys.
    if (tile * Tiles::kStreamed > g.last_key(first_query + warp_row + Tiles::kWarpRows - 1)) return;
    const Element* const k_tile = streamed + stage * 2 * kStreamedElems;
    typename Tiles::Sums scores = {};
    Tiles::score(lane, scores, q_tile + warp_row * Tiles::kStride, k_tile);
    for_each_sum<Tiles>(lane, 0, 0, [&](int m, int n, int e, int /*row*/, int /*column*/) {
      scores[m][n][e] = Lane::exp2(factor * scores[m][n][e] - numbers[m][e / 2].lse);
    });
    mask_keys<Tiles>(lane, scores, first_query + warp_row, tile * Tiles::kStreamed, g, 0);
    typename Tiles::Sums dp = {};
    Tiles::score(lane, dp, d_o_tile + warp_row * Tiles::kStride, k_tile + kStreamedElems);
    for_each_sum<Tiles>(lane, 0, 0, [&](int m, int n, int e, int /*row*/, int /*column*/) {
      scores[m][n][e] *= dp[m][n][e] - numbers[m][e / 2].delta;
    });
    Tiles::accumulate(lane, dq, scores, k_tile);
  };
  stream_tiles<Tiles::kStages>(lane, 0, tiles_of(g.last_key(past_query - 1) + 1, Tiles::kStreamed), copy, compute);
  store_rows<Tiles>(lane, dq, query_rows(operands.dq, g, work), first_query + warp_row, 0, g,
                    [&](int /*m*/, int /*half*/) { return g.scale; });
}

// For sums that are weights of keys (rows) and queries (columns): sets those to 0 whose query or key does not exist, or
// whose query does not see the key.
template <class Tiles, class Lane>
__device__ void mask_queries(Lane& lane, typename Tiles::Sums& weights, int first_key, int first_query,
                             const AttentionGeometry& g) {
  const int last_key = first_key + Tiles::kWarpRows - 1;
  if (last_key <= g.last_key(first_query) && first_query + Tiles::kStreamed <= g.queries) return;
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane_column = first_query + sum_column(lane.lane(), 0, 0);
      const int key = first_key + 16 * m + sum_row(lane.lane(), 2 * half);
      const int first = (key < g.keys ? g.first_query(key) : g.queries) - lane_column;
      const int past = g.queries - lane_column;
#pragma unroll
      for (int n = 0; n < Tiles::kBlocks; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * n + e < first || 8 * n + e >= past) weights[m][n][2 * half + e] = 0;
        }
      }
    }
  }
}

// Computes dk and dv, summed over the heads of queries that share the keys, one head after another. Rows of the sums
// are keys here, columns are queries.
template <class Tiles, class Lane>
__device__ void attention_keys_block(Lane& lane, const BackwardOperands<typename Tiles::Value>& operands,
                                     std::int64_t block) {
  using Element = typename Tiles::Element;
  const AttentionGeometry& g = operands.geometry;
  // The first keys are seen by most queries: they start first.
  const BlockWork work = work_of_block(block, g.kv_heads, tiles_of(g.keys, Tiles::kRows), Tiles::kSlices);
  const int first_key = work.tile * Tiles::kRows;

  constexpr int kStreamedElems = Tiles::kStreamed * Tiles::kStride;
  Element* const k_tile = static_cast<Element*>(lane.shared());
  Element* const v_tile = k_tile + Tiles::kRows * Tiles::kStride;
  Element* const streamed = v_tile + Tiles::kRows * Tiles::kStride;
  auto* const streamed_numbers = reinterpret_cast<QueryNumbers*>(streamed + 2 * Tiles::kStages * kStreamedElems);
  const int warp_row = lane.warp() * Tiles::kWarpRows;
  copy_tile<Tiles, Tiles::kRows>(lane, k_tile, key_rows(operands.k, g, work.batch, work.head), first_key, g);
  copy_tile<Tiles, Tiles::kRows>(lane, v_tile, key_rows(operands.v, g, work.batch, work.head), first_key, g);

  typename Tiles::Result dk = {};
  typename Tiles::Result dv = {};
  const int first_column = work.slice * Tiles::kSlice;
  const float factor = g.scale * kLog2E;
  HeadRows<const typename Tiles::Value> queries = {};
  HeadRows<const typename Tiles::Value> d_os = {};
  const QueryNumbers* numbers = nullptr;
  const auto copy = [&](int tile, int stage) {
    const int first_query = tile * Tiles::kStreamed;
    Element* const to = streamed + stage * 2 * kStreamedElems;
    copy_tile<Tiles, Tiles::kStreamed>(lane, to, queries, first_query, g);
    copy_tile<Tiles, Tiles::kStreamed>(lane, to + kStreamedElems, d_os, first_query, g);
    if (lane.thread() < Tiles::kStreamed) {
      const int query = first_query + lane.thread();
      lane.template copy<8>(streamed_numbers + stage * Tiles::kStreamed + lane.thread(), numbers + query,
                            query < g.queries);
    }
  };
  const auto compute = [&](int tile, int stage) {
    const int first_query = tile * Tiles::kStreamed;
    // A warp has nothing to do if none of its keys is seen by these queries.
    if (first_key + warp_row > g.last_key(first_query + Tiles::kStreamed - 1)) return;
    const Element* const q_tile = streamed + stage * 2 * kStreamedElems;
    const Element* const d_o_tile = q_tile + kStreamedElems;
    const QueryNumbers* const of_lane = streamed_numbers + stage * Tiles::kStreamed + sum_column(lane.lane(), 0, 0);
    typename Tiles::Sums p = {};
    Tiles::score(lane, p, k_tile + warp_row * Tiles::kStride, q_tile);
    for_each_sum<Tiles>(lane, 0, 0, [&](int m, int n, int e, int /*row*/, int /*column*/) {
      p[m][n][e] = Lane::exp2(factor * p[m][n][e] - of_lane[8 * n + e % 2].lse);
    });
    mask_queries<Tiles>(lane, p, first_key + warp_row, first_query, g);
    Tiles::accumulate(lane, dv, p, d_o_tile + first_column);
    typename Tiles::Sums dp = {};
    Tiles::score(lane, dp, v_tile + warp_row * Tiles::kStride, d_o_tile);
    for_each_sum<Tiles>(lane, 0, 0, [&](int m, int n, int e, int /*row*/, int /*column*/) {
      p[m][n][e] *= dp[m][n][e] - of_lane[8 * n + e % 2].delta;
    });
    Tiles::accumulate(lane, dk, p, q_tile + first_column);
  };
  for (int h = 0; h < g.group(); ++h) {
    const BlockWork of_queries{work.batch, work.head * g.group() + h, 0, 0};
    queries = query_rows(operands.q, g, of_queries);
    d_os = packed_rows(operands.d_o, g, of_queries);
    numbers = row_numbers(operands.numbers, g, of_queries);
    if (h > 0) lane.sync();  // all threads have finished with the previous head's tiles
    stream_tiles<Tiles::kStages>(lane, g.first_query(first_key) / Tiles::kStreamed,
                                 tiles_of(g.queries, Tiles::kStreamed), copy, compute);
  }
  store_rows<Tiles>(lane, dk, key_rows(operands.dk, g, work.batch, work.head), first_key + warp_row, first_column, g,
                    [&](int /*m*/, int /*half*/) { return g.scale; });
  store_rows<Tiles>(lane, dv, key_rows(operands.dv, g, work.batch, work.head), first_key + warp_row, first_column, g,
                    [](int /*m*/, int /*half*/) { return 1.0F; });
}

// The blocks of both gradients are in one grid, so that one kind fills the part of the device that the other leaves
// idle. Keys come first: they need four products per tile, queries three.
template <class Kernels>
std::int64_t keys_blocks_of(const AttentionShape& s) {
  return key_blocks_of(s, Kernels::Keys::kRows) * Kernels::Keys::kSlices;
}
template <class Kernels>
std::int64_t backward_blocks_of(const AttentionShape& s) {
  return keys_blocks_of<Kernels>(s) + query_blocks_of(s, Kernels::Queries::kRows);
}
template <class Kernels>
constexpr std::size_t gradient_shared_bytes() {
  return std::max(backward_shared_bytes<typename Kernels::Keys>(), backward_shared_bytes<typename Kernels::Queries>());
}
template <class Kernels, class Lane>
__device__ void attention_backward_block(Lane& lane, const BackwardOperands<typename Kernels::Value>& operands,
                                         std::int64_t keys_blocks, std::int64_t block) {
  if (block < keys_blocks) {
    attention_keys_block<typename Kernels::Keys>(lane, operands, block);
  } else {
    attention_queries_block<typename Kernels::Queries>(lane, operands, block - keys_blocks);
  }
}

}  // namespace lockstep::kernels
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
