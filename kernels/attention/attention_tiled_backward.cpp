#include "kernels/attention/attention.h"
#include "kernels/attention/attention_tiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_tiled_backward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/attention/attention_tiled-inl.h"
#include "kernels/base/vector_math-inl.h"
#include "kernels/base/vector_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Degree of the exponential's polynomial: its error is a twentieth of bf16's.
constexpr int kWeightDegree = 3;

// Packs a head of queries in the layouts that all key tiles read.
void pack_queries(const AttentionBackward& args, const QueryHead& of, const TiledBackwardMemory& memory) {
  const AttentionShape& shape = args.shape;
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const auto q = query_rows(args.q.as<BFloat16>(), shape, of);
  const auto o = packed_rows(args.o.as<BFloat16>(), shape, of);
  const auto d_o = packed_rows(args.d_o.as<BFloat16>(), shape, of);
  for (std::int64_t tile = 0; tile < tiles_of(shape.queries); ++tile) {
    const std::int64_t num_queries = std::min(kTile, shape.queries - tile * kTile);
    const std::int64_t at = tile * kTile * columns;
    pack_bf16_rows(q, tile * kTile, num_queries, kTile, shape.head_columns, memory.rows);
    pair_rows(memory.rows, kTile, columns, memory.q_pairs + at);
    pair_columns(memory.rows, columns, memory.qt_pairs + at);
    pack_bf16_rows(d_o, tile * kTile, num_queries, kTile, shape.head_columns, memory.rows);
    pair_rows(memory.rows, kTile, columns, memory.d_o_pairs + at);
    pair_columns(memory.rows, columns, memory.d_ot_pairs + at);
  }
  const std::int64_t all_queries = tiles_of(shape.queries) * kTile;
  const float* const lse = lse_of(args.lse.as<float>(), shape, of);
  std::transform(lse, lse + shape.queries, memory.lse, [](float value) { return value * kLog2E; });
  std::fill(memory.lse + shape.queries, memory.lse + all_queries, 0.0F);
  for (std::int64_t i = 0; i < shape.queries; ++i) {
    memory.delta[i] = delta_of(o.row(i), d_o.row(i), static_cast<std::size_t>(shape.head_columns));
  }
  std::fill(memory.delta + shape.queries, memory.delta + all_queries, 0.0F);
}

// A weight and the gradient of its score.
struct Weighed {
  VF32 weight;
  VF32 d_score;
};

// Turns scores into weights, and gradients of weights into gradients of scores; 0 if a query does not see a key.
void weigh_tile(const AttentionShape& shape, const TiledBackwardMemory& memory, const TilePair& pair,
                std::size_t first_query) {
  const F32 d;
  const VF32 factor = hn::Set(d, shape.factor() * kLog2E);
  const auto key_end = static_cast<std::size_t>(whole_blocks(pair.num_keys));
  const auto query_end = static_cast<std::size_t>(whole_blocks(pair.num_queries));
  for (std::size_t column = 0; column < query_end; column += lanes_f32()) {
    const SeenKeys seen = seen_keys(pair, column);
    const VF32 lse = load(memory.lse + first_query + column);
    const VF32 delta = load(memory.delta + first_query + column);
    const auto weighed = [&](std::size_t j) HWY_ATTR {
      if (j >= seen.some) return Weighed{hn::Zero(d), hn::Zero(d)};
      const VF32 score = load(memory.scores + j * kTileRow + column);
      const VF32 weight = exp2_f32<kWeightDegree>(hn::MulSub(score, factor, lse));
      const VF32 d_weight = load(memory.d_weights + j * kTileRow + column);
      const Weighed all{weight, hn::Mul(weight, hn::Sub(d_weight, delta))};
      if (j < seen.all) return all;
      const auto mask = sees(pair, column, j);
      return Weighed{hn::IfThenElseZero(mask, all.weight), hn::IfThenElseZero(mask, all.d_score)};
    };
    for (std::size_t j = 0; j < key_end; j += 2) {
      const Weighed even = weighed(j);
      const Weighed odd = weighed(j + 1);
      const std::size_t at = j * kTileRow + column;
      store_rounded(even.weight, memory.weights + at);
      store_rounded(odd.weight, memory.weights + at + kTileRow);
      store_rounded(even.d_score, memory.d_scores + at);
      store_rounded(odd.d_score, memory.d_scores + at + kTileRow);
      store_pair_of_rows(even.d_score, odd.d_score, memory.score_pairs + j * kTileRow + 2 * column);
    }
  }
}

// Adds a tile pair's contribution to dk and dv of the key tile and to dq.
void add_pair(const AttentionShape& shape, const TiledBackwardMemory& m, const TilePair& pair, std::int64_t gathered,
              std::int64_t query_tile, TileMultiplier& tiles) {
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t keys = whole_blocks(pair.num_keys);
  const std::int64_t queries = whole_blocks(pair.num_queries);
  const std::int64_t at = query_tile * kTile * columns;
  multiply_scores(tiles, pair,
                  {m.k, columns, m.qt_pairs + at, 2 * kTile, m.scores, kTile, keys, queries, columns, false});
  multiply_scores(tiles, pair,
                  {m.v, columns, m.d_ot_pairs + at, 2 * kTile, m.d_weights, kTile, keys, queries, columns, false});
  weigh_tile(shape, m, pair, static_cast<std::size_t>(query_tile) * kTileRow);
  multiply_keys(
      tiles, pair,
      {m.weights, kTile, m.d_o_pairs + at, 2 * columns, m.dv + gathered, columns, keys, columns, queries, true});
  multiply_keys(
      tiles, pair,
      {m.d_scores, kTile, m.q_pairs + at, 2 * columns, m.dk + gathered, columns, keys, columns, queries, true});
  multiply_queries(tiles, pair,
                   {m.kt, kTile, m.score_pairs, 2 * kTile, m.dqt + at, kTile, columns, queries, keys, true});
}

// Computes the gradients of a key tile, to which heads of queries add one after the other.
void key_tile(const AttentionBackward& args, const AttentionPiece& piece, const TiledBackwardMemory& memory,
              std::int64_t tile, std::int64_t query_head, TileMultiplier& tiles) {
  const AttentionShape& shape = args.shape;
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t num_keys = std::min(kTile, shape.keys - tile * kTile);
  const auto rows_of = [&](const auto& view) { return key_rows(view.template as<BFloat16>(), shape, piece); };
  pack_bf16_rows(rows_of(args.k), tile * kTile, num_keys, kTile, shape.head_columns, memory.k);
  transpose_bf16(memory.k, columns, memory.pairs, memory.kt);
  pack_bf16_rows(rows_of(args.v), tile * kTile, num_keys, kTile, shape.head_columns, memory.v);
  const std::int64_t gathered = shape.group() == 1 ? 0 : tile * kTile * columns;
  if (query_head == 0) {
    std::fill_n(memory.dk + gathered, kTile * columns, 0.0F);
    std::fill_n(memory.dv + gathered, kTile * columns, 0.0F);
  }
  for (std::int64_t query_tile = 0; query_tile < tiles_of(shape.queries); ++query_tile) {
    const TilePair pair = tile_pair(shape, tile, query_tile);
    if (is_seen(pair)) add_pair(shape, memory, pair, gathered, query_tile, tiles);
  }
  if (query_head + 1 < shape.group()) return;
  const auto unpack = [&](const float* from, float factor, const Out& view) {
    const auto to = rows_of(view);
    unpack_rows(from, static_cast<std::size_t>(columns), num_keys, static_cast<std::size_t>(shape.head_columns), factor,
                HeadRows<BFloat16>{to.row(tile * kTile), to.stride});
  };
  unpack(memory.dk + gathered, shape.factor(), args.dk);
  unpack(memory.dv + gathered, 1, args.dv);
}

void tiled_backward_piece(const AttentionBackward& args, const AttentionPiece& piece, const TiledBackwardMemory& memory,
                          TileMultiplier& tiles) {
  const AttentionShape& shape = args.shape;
  const std::int64_t columns = whole_blocks(shape.head_columns);
  for_each_query_head(shape, piece, [&](const QueryHead& of, std::int64_t h) {
    pack_queries(args, of, memory);
    std::fill_n(memory.dqt, tiles_of(shape.queries) * kTile * columns, 0.0F);
    for (std::int64_t tile = 0; tile < tiles_of(shape.keys); ++tile) key_tile(args, piece, memory, tile, h, tiles);
    const auto dq = query_rows(args.dq.as<BFloat16>(), shape, of);
    for (std::int64_t tile = 0; tile < tiles_of(shape.queries); ++tile) {
      transpose_words(memory.dqt + tile * kTile * columns, columns, kTile, memory.dq, columns);
      unpack_rows(memory.dq, static_cast<std::size_t>(columns), std::min(kTile, shape.queries - tile * kTile),
                  static_cast<std::size_t>(shape.head_columns), shape.factor(),
                  HeadRows<BFloat16>{dq.row(tile * kTile), dq.stride});
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(tiled_backward_piece);
}  // namespace

void run_tiled_piece(const AttentionBackward& args, const AttentionPiece& piece, const TiledBackwardMemory& memory,
                     TileMultiplier& tiles) {
  HWY_DYNAMIC_DISPATCH(tiled_backward_piece)(args, piece, memory, tiles);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
