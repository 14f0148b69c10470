#include "kernels/attention/attention.h"
#include "kernels/attention/attention_tiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_tiled_forward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/attention/attention_tiled-inl.h"
#include "kernels/base/vector_math-inl.h"
#include "kernels/base/vector_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Degree of the exponential's polynomial: the log-sum-exp is f32 and inherits its error.
constexpr int kWeightDegree = 4;

// Scales the columns of ot whose maximum rose.
void decrease_columns(const TiledForwardMemory& memory, std::int64_t columns, std::size_t column, VF32 by) {
  const F32 d;
  if (hn::AllTrue(d, hn::Eq(by, hn::Set(d, 1.0F)))) return;
  float* at = memory.ot + column;
  for (std::int64_t c = 0; c < columns; ++c, at += kTileRow) store(hn::Mul(by, load(at)), at);
}

// Turns scores into weights relative to the new maximum, a vector of queries at a time; `first` marks the query tile's
// first pair.
void weigh_tile(const AttentionShape& shape, const TiledForwardMemory& memory, const TilePair& pair, bool first) {
  const VF32 factor = hn::Set(F32(), shape.factor() * kLog2E);
  const auto end = static_cast<std::size_t>(whole_blocks(pair.num_keys));
  for (std::size_t column = 0; column < static_cast<std::size_t>(pair.num_queries); column += lanes_f32()) {
    const SeenKeys seen = seen_keys(pair, column);
    const VF32 old_max = load(memory.max + column);
    const VF32 max = max_of_column(memory.scores, pair, column, seen, old_max);
    const VF32 decrease = exp2_f32(hn::Mul(factor, hn::Sub(old_max, max)));
    VF32 sum = hn::Mul(load(memory.sum + column), decrease);
    const auto weight_of = [&](std::size_t j) HWY_ATTR {
      const VF32 score = load(memory.scores + j * kTileRow + column);
      const VF32 weight = exp2_f32<kWeightDegree>(hn::Mul(factor, hn::Sub(score, max)));
      sum = hn::Add(sum, weight);
      return weight;
    };
    for (std::size_t j = 0; j < end; j += 2) {
      const VF32 even = j < seen.some ? weight_of(j) : hn::Zero(F32());
      const VF32 odd = j + 1 < seen.some ? weight_of(j + 1) : hn::Zero(F32());
      store_pair_of_rows(even, odd, memory.weights + j * kTileRow + 2 * column);
    }
    store(max, memory.max + column);
    store(sum, memory.sum + column);
    if (!first) decrease_columns(memory, whole_blocks(shape.head_columns), column, decrease);
  }
}

// Computes a query tile with all keys that it sees.
void query_tile(const AttentionForward& args, const QueryHead& of, const TiledForwardMemory& memory, std::int64_t tile,
                TileMultiplier& tiles) {
  const AttentionShape& shape = args.shape;
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t num_queries = std::min(kTile, shape.queries - tile * kTile);
  const auto q = query_rows(args.q.as<BFloat16>(), shape, of);
  pack_bf16_rows(q, tile * kTile, num_queries, kTile, shape.head_columns, memory.rows);
  pair_columns(memory.rows, columns, memory.qt_pairs);
  std::fill_n(memory.max, kTile, kLowest);
  std::fill_n(memory.sum, kTile, 0.0F);
  std::fill_n(memory.weights, kTile * kTile, BFloat16{});
  for (std::int64_t key_tile = 0; key_tile < tiles_of(shape.keys); ++key_tile) {
    const TilePair pair = tile_pair(shape, key_tile, tile);
    if (!is_seen(pair)) break;
    const std::int64_t keys = whole_blocks(pair.num_keys);
    const std::int64_t queries = whole_blocks(num_queries);
    multiply_scores(tiles, pair,
                    {memory.k + key_tile * kTile * columns, columns, memory.qt_pairs, 2 * kTile, memory.scores, kTile,
                     keys, queries, columns, false});
    const bool first = key_tile == 0;
    weigh_tile(shape, memory, pair, first);
    multiply_queries(tiles, pair,
                     {memory.vt + key_tile * kTile * columns, kTile, memory.weights, 2 * kTile, memory.ot, kTile,
                      columns, queries, keys, !first});
  }
  transpose_words(memory.ot, columns, kTile, memory.o, columns);
  finish_rows<BFloat16>(args, of, {memory.o, memory.max, memory.sum, shape.factor()}, tile * kTile, num_queries,
                        static_cast<std::size_t>(columns));
}

void tiled_forward_piece(const AttentionForward& args, const AttentionPiece& piece, const TiledForwardMemory& memory,
                         TileMultiplier& tiles) {
  const AttentionShape& shape = args.shape;
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const auto k = key_rows(args.k.as<BFloat16>(), shape, piece);
  const auto v = key_rows(args.v.as<BFloat16>(), shape, piece);
  pack_bf16_rows(k, 0, shape.keys, tiles_of(shape.keys) * kTile, shape.head_columns, memory.k);
  for (std::int64_t tile = 0; tile < tiles_of(shape.keys); ++tile) {
    const std::int64_t num_keys = std::min(kTile, shape.keys - tile * kTile);
    pack_bf16_rows(v, tile * kTile, num_keys, kTile, shape.head_columns, memory.rows);
    transpose_bf16(memory.rows, columns, memory.pairs, memory.vt + tile * kTile * columns);
  }
  for_each_query_head(shape, piece, [&](const QueryHead& of, std::int64_t /*h*/) {
    for (std::int64_t tile = piece.first_tile; tile < tiles_of(shape.queries); tile += piece.tile_step) {
      query_tile(args, of, memory, tile, tiles);
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
HWY_EXPORT(tiled_forward_piece);
}  // namespace

void run_tiled_piece(const AttentionForward& args, const AttentionPiece& piece, const TiledForwardMemory& memory,
                     TileMultiplier& tiles) {
  HWY_DYNAMIC_DISPATCH(tiled_forward_piece)(args, piece, memory, tiles);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
