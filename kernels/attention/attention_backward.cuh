// The backward of one block, without atomics: the gradient of a tile of queries is summed up by one block over the keys
// that they see, those of a tile of keys and values by another over the queries that see them. Both compute the
// probabilities p = exp(score - lse) again; with delta = sum over columns of o d_o, the gradient of the scores is
// p (d_o . v - delta). Dao 2023, section 3.1, has one pass over keys that adds to dq by atomics: fewer products, and a
// result that depends on the order.
#pragma once

#include "kernels/attention/attention_forward.cuh"

// Offsets in shared memory are small.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
namespace lockstep::kernels {

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
  float* delta;  // as lse
};

// `delta`: one number for each of lse.
template <class T>
BackwardOperands<T> operands_for(const AttentionBackward& args, float* delta) {
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
          delta};
}

// delta of one row a warp: row (batch, query, head) of o and d_o.
template <class Lane, class T>
__device__ void attention_delta_block(Lane& lane, const BackwardOperands<T>& operands, std::int64_t num_rows,
                                      std::int64_t block) {
  const AttentionGeometry& g = operands.geometry;
  const std::int64_t row = block * kAttentionWarps + lane.warp();
  if (row >= num_rows) return;
  const T* const o = operands.o + row * g.head_columns;
  const T* const d_o = operands.d_o + row * g.head_columns;
  float sum = 0;
  for (int column = lane.lane(); column < g.head_columns; column += 32) {
    sum += Lane::widen(o[column]) * Lane::widen(d_o[column]);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += lane.from_partner(sum, mask);
  const std::int64_t head = row % g.heads;
  const std::int64_t query = row / g.heads % g.queries;
  const std::int64_t batch = row / g.heads / g.queries;
  if (lane.lane() == 0) operands.delta[(batch * g.heads + head) * g.queries + query] = sum;
}

// Bytes of shared memory: two tiles of the block's rows, two of each stage, and two numbers a streamed row.
template <class Tiles>
constexpr std::size_t backward_shared_bytes() {
  return sizeof(typename Tiles::Element) * Tiles::kStride * 2 * (Tiles::kRows + Tiles::kStages * Tiles::kStreamed) +
         sizeof(float) * 2 * Tiles::kStages * Tiles::kStreamed;
}

// dq.
template <class Tiles, class Lane>
__device__ void attention_queries_block(Lane& lane, const BackwardOperands<typename Tiles::Value>& operands,
                                        std::int64_t block) {
  static_assert(Tiles::kSlices == 1);
  using Element = typename Tiles::Element;
  const AttentionGeometry& g = operands.geometry;
  const int tiles = tiles_of(g.queries, Tiles::kRows);
  BlockPlace place = block_place(block, g.heads, tiles, 1);
  place.tile = tiles - 1 - place.tile;  // the last queries see the most keys: they start first
  const int first_query = place.tile * Tiles::kRows;
  const int past_query = first_query + Tiles::kRows < g.queries ? first_query + Tiles::kRows : g.queries;
  const auto keys = strided_rows(operands.k, g, g.keys, place);
  const auto values = strided_rows(operands.v, g, g.keys, place);

  constexpr int kStreamedElems = Tiles::kStreamed * Tiles::kStride;
  Element* const q_tile = static_cast<Element*>(lane.shared());
  Element* const d_o_tile = q_tile + Tiles::kRows * Tiles::kStride;
  Element* const streamed = d_o_tile + Tiles::kRows * Tiles::kStride;
  const int warp_row = lane.warp() * Tiles::kWarpRows;
  copy_tile<Tiles, Tiles::kRows>(lane, q_tile, strided_rows(operands.q, g, g.queries, place), first_query, g);
  copy_tile<Tiles, Tiles::kRows>(lane, d_o_tile, packed_rows(operands.d_o, g, place), first_query, g);

  float lse[Tiles::kBands][2];  // in units of log 2
  float delta[Tiles::kBands][2];
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + warp_row + 16 * m + sum_row(lane.lane(), 2 * half);
      const bool there = query < g.queries;
      lse[m][half] = there ? kLog2E * row_numbers(operands.lse, g, place)[query] : INFINITY;
      delta[m][half] = there ? row_numbers(operands.delta, g, place)[query] : 0.0F;
    }
  }

  typename Tiles::Result dq = {};
  const auto copy = [&](int tile, int stage) {
    Element* const to = streamed + stage * 2 * kStreamedElems;
    copy_tile<Tiles, Tiles::kStreamed>(lane, to, keys, tile * Tiles::kStreamed, g);
    copy_tile<Tiles, Tiles::kStreamed>(lane, to + kStreamedElems, values, tile * Tiles::kStreamed, g);
  };
  const auto compute = [&](int tile, int stage) {
    // Nothing to do for a warp none of whose queries sees these keys.
    if (tile * Tiles::kStreamed > g.last_key(first_query + warp_row + Tiles::kWarpRows - 1)) return;
    const Element* const k_tile = streamed + stage * 2 * kStreamedElems;
    typename Tiles::Sums scores = {};
    Tiles::score(lane, scores, q_tile + warp_row * Tiles::kStride, k_tile);
    scale_and_mask<Tiles>(lane, scores, first_query + warp_row, tile * Tiles::kStreamed, g);
    typename Tiles::Sums dp = {};
    Tiles::score(lane, dp, d_o_tile + warp_row * Tiles::kStride, k_tile + kStreamedElems);
    for_each_sum<Tiles>(lane, 0, 0, [&](int m, int n, int e, int /*row*/, int /*column*/) {
      scores[m][n][e] = exp2f(scores[m][n][e] - lse[m][e / 2]) * (dp[m][n][e] - delta[m][e / 2]);
    });
    Tiles::accumulate(lane, dq, scores, k_tile);
  };
  stream_tiles<Tiles::kStages>(lane, 0, tiles_of(g.last_key(past_query - 1) + 1, Tiles::kStreamed), copy, compute);
  store_rows<Tiles>(lane, dq, strided_rows(operands.dq, g, g.queries, place), first_query + warp_row, 0, g,
                    [&](int /*m*/, int /*half*/) { return g.scale; });
}

// dk and dv. Rows of the sums are keys here, columns are queries.
template <class Tiles, class Lane>
__device__ void attention_keys_block(Lane& lane, const BackwardOperands<typename Tiles::Value>& operands,
                                     std::int64_t block) {
  using Element = typename Tiles::Element;
  const AttentionGeometry& g = operands.geometry;
  // The first keys are seen by the most queries: they start first.
  const BlockPlace place = block_place(block, g.heads, tiles_of(g.keys, Tiles::kRows), Tiles::kSlices);
  const int first_key = place.tile * Tiles::kRows;
  const auto queries = strided_rows(operands.q, g, g.queries, place);
  const auto d_os = packed_rows(operands.d_o, g, place);
  const float* const lse = row_numbers(operands.lse, g, place);
  const float* const delta = row_numbers(static_cast<const float*>(operands.delta), g, place);

  constexpr int kStreamedElems = Tiles::kStreamed * Tiles::kStride;
  Element* const k_tile = static_cast<Element*>(lane.shared());
  Element* const v_tile = k_tile + Tiles::kRows * Tiles::kStride;
  Element* const streamed = v_tile + Tiles::kRows * Tiles::kStride;
  float* const numbers = reinterpret_cast<float*>(streamed + 2 * Tiles::kStages * kStreamedElems);  // lse, delta
  const int warp_row = lane.warp() * Tiles::kWarpRows;
  copy_tile<Tiles, Tiles::kRows>(lane, k_tile, strided_rows(operands.k, g, g.keys, place), first_key, g);
  copy_tile<Tiles, Tiles::kRows>(lane, v_tile, strided_rows(operands.v, g, g.keys, place), first_key, g);

  typename Tiles::Result dk = {};
  typename Tiles::Result dv = {};
  const int first_column = place.slice * Tiles::kSlice;
  const auto copy = [&](int tile, int stage) {
    const int first_query = tile * Tiles::kStreamed;
    Element* const to = streamed + stage * 2 * kStreamedElems;
    copy_tile<Tiles, Tiles::kStreamed>(lane, to, queries, first_query, g);
    copy_tile<Tiles, Tiles::kStreamed>(lane, to + kStreamedElems, d_os, first_query, g);
    float* const to_numbers = numbers + stage * 2 * Tiles::kStreamed;
    for (int i = lane.thread(); i < 2 * Tiles::kStreamed; i += kAttentionThreads) {
      const int query = first_query + i % Tiles::kStreamed;
      const bool there = query < g.queries;
      lane.template copy<4>(to_numbers + i, (i < Tiles::kStreamed ? lse : delta) + (there ? query : 0), there);
    }
  };
  const auto compute = [&](int tile, int stage) {
    const int first_query = tile * Tiles::kStreamed;
    // Nothing to do for a warp none of whose keys is seen by these queries.
    if (first_key + warp_row > g.last_key(first_query + Tiles::kStreamed - 1)) return;
    const Element* const q_tile = streamed + stage * 2 * kStreamedElems;
    const Element* const d_o_tile = q_tile + kStreamedElems;
    const float* const tile_lse = numbers + stage * 2 * Tiles::kStreamed;
    const float* const tile_delta = tile_lse + Tiles::kStreamed;
    // The last of these keys is seen by the first of these queries, and all are there.
    const int last_of_keys = first_key + warp_row + Tiles::kWarpRows - 1;
    const bool all_seen = last_of_keys <= g.last_key(first_query) && first_query + Tiles::kStreamed <= g.queries;
    const float factor = g.scale * kLog2E;
    typename Tiles::Sums p = {};
    Tiles::score(lane, p, k_tile + warp_row * Tiles::kStride, q_tile);
    for_each_sum<Tiles>(lane, first_key + warp_row, first_query, [&](int m, int n, int e, int key, int query) {
      const bool seen = all_seen || (query < g.queries && key <= g.last_key(query));
      const float power = factor * p[m][n][e] - kLog2E * tile_lse[query - first_query];
      p[m][n][e] = seen ? exp2f(power) : 0.0F;
    });
    Tiles::accumulate(lane, dv, p, d_o_tile + first_column);
    typename Tiles::Sums dp = {};
    Tiles::score(lane, dp, v_tile + warp_row * Tiles::kStride, d_o_tile);
    for_each_sum<Tiles>(lane, 0, 0, [&](int m, int n, int e, int /*row*/, int column) {
      p[m][n][e] *= dp[m][n][e] - tile_delta[column];
    });
    Tiles::accumulate(lane, dk, p, q_tile + first_column);
  };
  stream_tiles<Tiles::kStages>(lane, g.first_query(first_key) / Tiles::kStreamed, tiles_of(g.queries, Tiles::kStreamed),
                               copy, compute);
  store_rows<Tiles>(lane, dk, strided_rows(operands.dk, g, g.keys, place), first_key + warp_row, first_column, g,
                    [&](int /*m*/, int /*half*/) { return g.scale; });
  store_rows<Tiles>(lane, dv, strided_rows(operands.dv, g, g.keys, place), first_key + warp_row, first_column, g,
                    [](int /*m*/, int /*half*/) { return 1.0F; });
}

}  // namespace lockstep::kernels
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
