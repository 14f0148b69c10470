// The pieces of attention on tiles of bf16: their packing, and one piece's forward and backward.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_tiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_tiled_pieces.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/attention/attention_tiles-inl.h"
#include "kernels/base/vector_map-inl.h"
#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using core::BFloat16;

// Packs `num_rows` rows from `first` on, and pads with zeros to whole blocks of columns and to `all_rows`.
inline void pack_bf16_rows(const HeadRows<const BFloat16>& from, std::int64_t first, std::int64_t num_rows,
                           std::int64_t all_rows, std::int64_t head_columns, BFloat16* to) {
  const auto row = static_cast<std::size_t>(whole_blocks(head_columns));
  const auto columns = static_cast<std::size_t>(head_columns);
  for (std::int64_t r = 0; r < num_rows; ++r, to += row) {
    std::memcpy(to, from.row(first + r), columns * sizeof(BFloat16));
    std::fill(to + columns, to + row, BFloat16{});
  }
  std::fill_n(to, static_cast<std::size_t>(all_rows - num_rows) * row, BFloat16{});
}

// Turns rows [rows][columns] into pairs [rows / 2][columns][2].
HWY_INLINE void pair_rows(const BFloat16* from, std::int64_t rows, std::int64_t columns, BFloat16* to) {
  const hn::ScalableTag<std::uint16_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto row = static_cast<std::size_t>(columns);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
  auto* pairs = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t r = 0; r < rows; r += 2, bits += 2 * row, pairs += 2 * row) {
    for (std::size_t c = 0; c < row; c += lanes) {
      hn::StoreInterleaved2(hn::LoadU(d, bits + c), hn::LoadU(d, bits + row + c), d, pairs + 2 * c);
    }
  }
}

// Transposes [rows][columns] of 32 bits each to [columns][rows]; rows and columns are multiples of 16, and the result's
// rows are `to_row` apart.
template <class T>
HWY_INLINE void transpose_words(const T* from, std::int64_t rows, std::int64_t columns, T* to, std::int64_t to_row) {
  constexpr std::size_t kWord = sizeof(std::uint32_t) / sizeof(T);  // elements per word
  const U32 d;
  const std::size_t lanes = hn::Lanes(d);
  const auto row = static_cast<std::size_t>(columns);
  const auto* words = reinterpret_cast<const std::uint32_t*>(from);
  HWY_ALIGN std::uint32_t fours[std::size_t{4} * HWY_MAX_BYTES / sizeof(std::uint32_t)];
  for (std::int64_t r = 0; r < rows; r += 4, words += 4 * row) {
    for (std::size_t c = 0; c < row; c += lanes) {
      hn::StoreInterleaved4(hn::LoadU(d, words + c), hn::LoadU(d, words + row + c), hn::LoadU(d, words + 2 * row + c),
                            hn::LoadU(d, words + 3 * row + c), d, fours);
      for (std::size_t l = 0; l < lanes; ++l) {
        const std::size_t at = (c + l) * static_cast<std::size_t>(to_row) + static_cast<std::size_t>(r);
        std::memcpy(to + at * kWord, fours + 4 * l, 4 * sizeof(std::uint32_t));
      }
    }
  }
}

// Turns a tile of rows into pairs of columns: [columns / 2][kTile][2].
HWY_INLINE void pair_columns(const BFloat16* rows, std::int64_t columns, BFloat16* to) {
  transpose_words(rows, kTile, columns / 2, to, kTile);
}
// Transposes a tile of rows: [columns][kTile].
HWY_INLINE void transpose_bf16(const BFloat16* rows, std::int64_t columns, BFloat16* pairs, BFloat16* to) {
  pair_rows(rows, kTile, columns, pairs);
  transpose_words(pairs, kTile / 2, columns, to, kTile / 2);
}

// The part of a product with the columns [begin, ...) of the right factor and the result, and with depths [begin, ...).
inline TileProduct from_column(TileProduct product, std::int64_t begin) {
  product.b += 2 * begin;
  product.c += begin;
  product.columns -= begin;
  return product;
}
inline TileProduct from_row(TileProduct product, std::int64_t begin) {
  product.a += begin * product.a_row;
  product.c += begin * product.c_row;
  product.rows -= begin;
  return product;
}
inline TileProduct of_depths(TileProduct product, std::int64_t begin, std::int64_t end) {
  product.a += begin;
  product.b += begin / 2 * product.b_row;
  product.depth = end - begin;
  return product;
}

// Products of a tile pair, block by block, without the parts that no query sees. Here rows are keys and columns
// queries:
inline void multiply_scores(TileMultiplier& tiles, const TilePair& pair, const TileProduct& whole) {
  if (!pair.cut()) return tiles.multiply(whole);
  for (std::int64_t row = 0; row < whole.rows; row += kTileBlock) {
    const std::int64_t first = std::max<std::int64_t>(row - pair.shift, 0) / kTileBlock * kTileBlock;
    if (first >= whole.columns) break;
    TileProduct part = from_column(from_row(whole, row), first);
    part.rows = kTileBlock;
    tiles.multiply(part);
  }
}
// here columns are queries, and depths keys:
inline void multiply_queries(TileMultiplier& tiles, const TilePair& pair, const TileProduct& whole) {
  if (!pair.cut()) return tiles.multiply(whole);
  for (std::int64_t column = 0; column < whole.columns; column += kTileBlock) {
    const std::int64_t seen = std::clamp<std::int64_t>(column + kTileBlock + pair.shift, 0, whole.depth);
    TileProduct part = of_depths(from_column(whole, column), 0, whole_blocks(seen));
    part.columns = kTileBlock;
    tiles.multiply(part);
  }
}
// and here rows are keys, and depths queries.
inline void multiply_keys(TileMultiplier& tiles, const TilePair& pair, const TileProduct& whole) {
  if (!pair.cut()) return tiles.multiply(whole);
  for (std::int64_t row = 0; row < whole.rows; row += kTileBlock) {
    const std::int64_t first = std::max<std::int64_t>(row - pair.shift, 0) / kTileBlock * kTileBlock;
    if (first >= whole.depth) break;
    TileProduct part = of_depths(from_row(whole, row), first, whole.depth);
    part.rows = kTileBlock;
    tiles.multiply(part);
  }
}

// Stores two vectors of f32 from rows 2 n and 2 n + 1 as pairs, and one vector in order. Rounds as
// vector_map-inl.h.
HWY_INLINE void store_pair_of_rows(VF32 even, VF32 odd, BFloat16* to) {
  store_result(WholePair<BFloat16>(), Pair{even, odd}, to);
}
HWY_INLINE void store_rounded(VF32 value, BFloat16* to) {
  const auto bits = hn::ShiftRight<16>(nearest_bfloat16_bits(value));
  hn::StoreU(hn::TruncateTo(HalfU16(), bits), HalfU16(), bits_at(to));
}

constexpr float kLog2E = 1.44269504088896341F;

// Degree of the polynomial of the forward's exponential: the log-sum-exp is f32 and inherits its error.
constexpr int kForwardDegree = 4;

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
      const VF32 weight = exp2_f32<kForwardDegree>(hn::Mul(factor, hn::Sub(score, max)));
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

// Degree of the polynomial of the backward's exponential: its error is a twentieth of bf16's.
constexpr int kBackwardDegree = 3;

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
      const VF32 weight = exp2_f32<kBackwardDegree>(hn::MulSub(score, factor, lse));
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
HWY_EXPORT(tiled_forward_piece);
HWY_EXPORT(tiled_backward_piece);
}  // namespace

void run_tiled_piece(const AttentionForward& args, const AttentionPiece& piece, const TiledForwardMemory& memory,
                     TileMultiplier& tiles) {
  HWY_DYNAMIC_DISPATCH(tiled_forward_piece)(args, piece, memory, tiles);
}

void run_tiled_piece(const AttentionBackward& args, const AttentionPiece& piece, const TiledBackwardMemory& memory,
                     TileMultiplier& tiles) {
  HWY_DYNAMIC_DISPATCH(tiled_backward_piece)(args, piece, memory, tiles);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
