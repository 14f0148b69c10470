// Forward of one block: a tile of queries is multiplied with all keys that it sees.
#pragma once

#include <cmath>

#include "kernels/attention/attention_tiles.cuh"

// Offsets in shared memory are small.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
namespace lockstep::kernels {

template <class T>
struct ForwardOperands {
  AttentionGeometry geometry;
  const T* q;
  const T* k;
  const T* v;
  T* o;
  float* lse;
};

template <class T>
ForwardOperands<T> operands_for(const AttentionForward& args) {
  return {geometry_of<T>(args.shape, {args.q.data, args.k.data, args.v.data, args.o.data}),
          args.q.as<T>(),
          args.k.as<T>(),
          args.v.as<T>(),
          args.o.as<T>(),
          args.lse.as<float>()};
}

// Bytes of shared memory: the queries, and the keys and values of each stage.
template <class Tiles>
constexpr std::size_t forward_shared_bytes() {
  return sizeof(typename Tiles::Element) * Tiles::kStride * (Tiles::kRows + 2 * Tiles::kStages * Tiles::kStreamed);
}

// Running maximum and sum of a lane's rows, in units of log 2: the maximum is the row's, the sum is the lane's part.
template <class Tiles>
struct RunningSoftmax {
  float maximum[Tiles::kBands][2];
  float sum[Tiles::kBands][2];

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < Tiles::kBands; ++m) {
      maximum[m][0] = maximum[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  // Turns scores into exp2(factor score - maximum), with one multiply-add and one power each. `fade` is the factor for
  // what was summed under the previous maximum. `factor` must not be negative.
  template <class Lane>
  __device__ void weigh(Lane& lane, typename Tiles::Sums& scores, float factor, float (&fade)[Tiles::kBands][2]) {
#pragma unroll
    for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = scores[m][0][2 * half];
#pragma unroll
        for (int n = 0; n < Tiles::kBlocks; ++n) {
          largest = fmaxf(largest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        largest = fmaxf(largest, lane.from_partner(largest, 1));
        largest = fmaxf(largest, lane.from_partner(largest, 2));
        largest = fmaxf(maximum[m][half], factor * largest);
        const float zero = largest == -INFINITY ? 0.0F : largest;  // if all scores are -infinity, the sum is 0
        fade[m][half] = Lane::exp2(maximum[m][half] - zero);
        maximum[m][half] = largest;
        float added = 0;
#pragma unroll
        for (int n = 0; n < Tiles::kBlocks; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][n][e] = Lane::exp2(factor * scores[m][n][e] - zero);
            added += scores[m][n][e];
          }
        }
        sum[m][half] = sum[m][half] * fade[m][half] + added;
      }
    }
  }

  // Adds the parts of the four lanes that share a row.
  template <class Lane>
  __device__ void finish(Lane& lane) {
#pragma unroll
    for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += lane.from_partner(sum[m][half], 1);
        sum[m][half] += lane.from_partner(sum[m][half], 2);
      }
    }
  }
};

// Scales a result by the factors that weigh() returned.
template <class Tiles>
__device__ void fade_rows(typename Tiles::Result& result, const float (&fade)[Tiles::kBands][2]) {
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int n = 0; n < Tiles::kSliceBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) result[m][n][e] *= fade[m][e / 2];
    }
  }
}

// Stores a warp's rows of the result and of the log-sum-exp.
template <class Tiles, class Lane, class Operands>
__device__ void store_forward(Lane& lane, RunningSoftmax<Tiles>& softmax, const typename Tiles::Result& result,
                              const Operands& operands, const BlockWork& work, int first_row) {
  const AttentionGeometry& g = operands.geometry;
  softmax.finish(lane);
  store_rows<Tiles>(lane, result, packed_rows(operands.o, g, work), first_row, 0, g,
                    [&](int m, int half) { return 1.0F / softmax.sum[m][half]; });
  float* const lse = row_numbers(operands.lse, g, work);
  if (lane.lane() % 4 != 0) return;
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_row + 16 * m + sum_row(lane.lane(), 2 * half);
      if (query < g.queries) lse[query] = kLn2 * (softmax.maximum[m][half] + log2f(softmax.sum[m][half]));
    }
  }
}

// Calls each(m, n, e, row, column) for a lane's sums; `row` and `column` start at the given values.
template <class Tiles, class Lane, class Each>
__device__ void for_each_sum(Lane& lane, int first_row, int first_column, Each each) {
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int n = 0; n < Tiles::kBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        each(m, n, e, first_row + 16 * m + sum_row(lane.lane(), e), first_column + sum_column(lane.lane(), n, e));
      }
    }
  }
}

// For sums that are scores of queries (rows) and keys (columns): sets those to `hidden` whose query does not see the
// key. Most tiles lie below the diagonal and need no mask.
template <class Tiles, class Lane>
__device__ void mask_keys(Lane& lane, typename Tiles::Sums& scores, int first_query, int first_key,
                          const AttentionGeometry& g, float hidden) {
  if (first_key + Tiles::kStreamed - 1 <= g.last_key(first_query)) return;
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + 16 * m + sum_row(lane.lane(), 2 * half);
      const int last = g.last_key(query) - first_key - sum_column(lane.lane(), 0, 0);
#pragma unroll
      for (int n = 0; n < Tiles::kBlocks; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * n + e > last) scores[m][n][2 * half + e] = hidden;
        }
      }
    }
  }
}

template <class Tiles, int kRows, class Lane>
__device__ void negate_tile(Lane& lane, typename Tiles::Element* tile) {
  using Element = typename Tiles::Element;
  lane.wait_for_copies();
  lane.sync();
#pragma unroll 1
  for (int i = lane.thread(); i < kRows * Tiles::kColumns; i += kAttentionThreads) {
    Element& at = tile[i / Tiles::kColumns * Tiles::kStride + i % Tiles::kColumns];
    at = Lane::template narrow<Element>(-Lane::widen(at));
  }
}

template <class Tiles, class Lane>
__device__ void attention_forward_block(Lane& lane, const ForwardOperands<typename Tiles::Value>& operands,
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
  Element* const streamed = q_tile + Tiles::kRows * Tiles::kStride;
  const int warp_row = lane.warp() * Tiles::kWarpRows;
  copy_tile<Tiles, Tiles::kRows>(lane, q_tile, query_rows(operands.q, g, work), first_query, g);

  if (g.scale < 0) negate_tile<Tiles, Tiles::kRows>(lane, q_tile);  // so that large products become large scores
  RunningSoftmax<Tiles> softmax;
  typename Tiles::Result result = {};
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
    mask_keys<Tiles>(lane, scores, first_query + warp_row, tile * Tiles::kStreamed, g, -INFINITY);
    float fade[Tiles::kBands][2];
    softmax.weigh(lane, scores, fabsf(g.scale) * kLog2E, fade);
    fade_rows<Tiles>(result, fade);
    Tiles::accumulate(lane, result, scores, k_tile + kStreamedElems);
  };
  stream_tiles<Tiles::kStages>(lane, 0, tiles_of(g.last_key(past_query - 1) + 1, Tiles::kStreamed), copy, compute);

  store_forward(lane, softmax, result, operands, work, first_query + warp_row);
}

}  // namespace lockstep::kernels
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
