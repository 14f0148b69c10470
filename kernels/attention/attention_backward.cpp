#include "kernels/attention/attention.h"
#include "kernels/attention/attention_pieces.h"
#include "kernels/base/element_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_backward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/attention/attention_tiles-inl.h"
#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Everything of one head that tile pairs read.
template <class T>
void pack_head(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory) {
  const AttentionShape& shape = args.shape;
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  const auto strided = [&](const In& view, std::int64_t length) {
    return head_rows(view.as<T>(), shape, piece, length, shape.stride());
  };
  const auto packed = [&](const In& view) { return head_rows(view.as<T>(), shape, piece, shape.queries, shape.row()); };
  pack_rows<T>(strided(args.k, shape.keys), shape.keys, columns, memory.k, row);
  pack_rows<T>(strided(args.v, shape.keys), shape.keys, columns, memory.v, row);
  pack_rows<T>(strided(args.q, shape.queries), shape.queries, columns, memory.q, row);
  pack_rows<T>(packed(args.d_o), shape.queries, columns, memory.d_o, row);
  std::fill_n(memory.lse, tiles_of(shape.queries) * kTile, 0.0F);
  std::copy_n(args.lse.as<float>() + (piece.batch * shape.heads + piece.head) * shape.queries, shape.queries,
              memory.lse);
  std::fill_n(memory.delta, tiles_of(shape.queries) * kTile, 0.0F);
  for (std::int64_t i = 0; i < shape.queries; ++i) {
    memory.delta[i] = delta_of(packed(args.o).row(i), packed(args.d_o).row(i), columns);
  }
  for (std::int64_t tile = 0; tile < tiles_of(shape.queries); ++tile) {
    const std::int64_t num_queries = std::min(kTile, shape.queries - tile * kTile);
    const std::size_t rows_at = static_cast<std::size_t>(tile) * kTileRow * row;
    const std::size_t tile_at = static_cast<std::size_t>(tile) * kTileRow * columns;
    transpose_tile(memory.q + rows_at, row, num_queries, columns, shape.factor(), memory.qt + tile_at);
    transpose_tile(memory.d_o + rows_at, row, num_queries, columns, 1, memory.d_ot + tile_at);
  }
}

// Scores to weights, and gradients of weights to gradients of scores; 0 where a query does not see a key.
void weigh_tile(const BackwardMemory& memory, const TilePair& pair, std::size_t first_query) {
  const F32 d;
  for (std::size_t column = 0; column < static_cast<std::size_t>(pair.num_queries); column += lanes_f32()) {
    const SeenKeys seen = seen_keys(pair, column);
    const VF32 lse = load(memory.lse + first_query + column);
    const VF32 delta = load(memory.delta + first_query + column);
    const auto weigh = [&](std::size_t j, auto keep) {
      float* const weight_at = memory.weights + j * kTileRow + column;
      float* const gradient_at = memory.d_scores + j * kTileRow + column;
      const VF32 weight = weight_f32(hn::Sub(load(weight_at), lse));
      store(keep(weight), weight_at);
      store(keep(hn::Mul(weight, hn::Sub(load(gradient_at), delta))), gradient_at);
    };
    std::size_t j = 0;
    for (; j < seen.all; ++j) weigh(j, [](VF32 value) { return value; });
    for (; j < seen.some; ++j) {
      weigh(j, [&](VF32 value) { return hn::IfThenElseZero(sees(pair, column, j), value); });
    }
    for (; j < static_cast<std::size_t>(pair.num_keys); ++j) {
      store(hn::Zero(d), memory.weights + j * kTileRow + column);
      store(hn::Zero(d), memory.d_scores + j * kTileRow + column);
    }
  }
}

// Adds what a tile pair gives to dk and dv of the key tile and to dq.
void add_pair(const AttentionShape& shape, const BackwardMemory& memory, const TilePair& pair, std::size_t first_key,
              std::size_t first_query) {
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  const auto num_keys = static_cast<std::size_t>(pair.num_keys);
  const auto num_queries = static_cast<std::size_t>(pair.num_queries);
  const std::size_t score_columns = whole_vectors(num_queries);
  const std::size_t head_width = whole_vectors(columns);
  const float* const k = memory.k + first_key * row;
  multiply<false>({k, row, 1}, {memory.qt + first_query * columns, kTileRow}, {memory.weights, kTileRow}, num_keys,
                  score_columns, ScorePart{pair, columns});
  multiply<false>({memory.v + first_key * row, row, 1}, {memory.d_ot + first_query * columns, kTileRow},
                  {memory.d_scores, kTileRow}, num_keys, score_columns, ScorePart{pair, columns});
  weigh_tile(memory, pair, first_query);
  multiply<true>({memory.weights, kTileRow, 1}, {memory.d_o + first_query * row, row}, {memory.dv, row}, num_keys,
                 head_width, KeyPart{pair});
  multiply<true>({memory.d_scores, kTileRow, 1}, {memory.q + first_query * row, row}, {memory.dk, row}, num_keys,
                 head_width, KeyPart{pair});
  multiply<true>({memory.d_scores, 1, kTileRow}, {k, row}, {memory.dq + first_query * row, row}, num_queries,
                 head_width, QueryPart{pair});
}

template <class T>
void key_tile(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory,
              std::int64_t tile) {
  const AttentionShape& shape = args.shape;
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  const std::int64_t num_keys = std::min(kTile, shape.keys - tile * kTile);
  std::fill_n(memory.dk, kTileRow * row, 0.0F);
  std::fill_n(memory.dv, kTileRow * row, 0.0F);
  for (std::int64_t query_tile = 0; query_tile < tiles_of(shape.queries); ++query_tile) {
    const TilePair pair = tile_pair(shape, tile, query_tile);
    if (!is_seen(pair)) continue;
    add_pair(shape, memory, pair, static_cast<std::size_t>(tile) * kTileRow,
             static_cast<std::size_t>(query_tile) * kTileRow);
  }
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto rows_of = [&](const Out& view) {
    const auto rows = head_rows(view.as<T>(), shape, piece, shape.keys, shape.stride());
    return HeadRows<T>{rows.row(tile * kTile), rows.stride};
  };
  unpack_rows(memory.dk, row, num_keys, columns, shape.factor(), rows_of(args.dk));
  unpack_rows(memory.dv, row, num_keys, columns, 1, rows_of(args.dv));
}

void backward_piece(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory) {
  with_activation_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const AttentionShape& shape = args.shape;
    const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
    pack_head<T>(args, piece, memory);
    std::fill_n(memory.dq, static_cast<std::size_t>(shape.queries) * row, 0.0F);
    for (std::int64_t tile = 0; tile < tiles_of(shape.keys); ++tile) key_tile<T>(args, piece, memory, tile);
    unpack_rows(memory.dq, row, shape.queries, static_cast<std::size_t>(shape.head_columns), shape.factor(),
                head_rows(args.dq.as<T>(), shape, piece, shape.queries, shape.stride()));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(backward_piece);
}  // namespace

void run_backward_piece(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory) {
  HWY_DYNAMIC_DISPATCH(backward_piece)(args, piece, memory);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
