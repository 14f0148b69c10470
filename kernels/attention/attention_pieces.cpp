#include "kernels/attention/attention_pieces.h"

#include "kernels/attention/attention.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_pieces.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/attention/attention_tiles-inl.h"
#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Turns scores into weights relative to the new maximum, column by column; updates sums and the factors for earlier
// results.
void weigh_tile(const ForwardMemory& memory, const TilePair& pair) {
  const F32 d;
  for (std::size_t column = 0; column < static_cast<std::size_t>(pair.num_queries); column += lanes_f32()) {
    const SeenKeys seen = seen_keys(pair, column);
    const VF32 old_max = load(memory.max + column);
    const VF32 max = max_of_column(memory.weights, pair, column, seen, old_max);
    VF32 sum = hn::Zero(d);
    float* at = memory.weights + column;
    for (std::size_t j = 0; j < seen.some; ++j, at += kTileRow) {
      const VF32 weight = weight_f32(hn::Sub(load(at), max));
      store(weight, at);
      sum = hn::Add(sum, weight);
    }
    for (std::size_t j = seen.some; j < static_cast<std::size_t>(pair.num_keys); ++j, at += kTileRow) {
      store(hn::Zero(d), at);
    }
    const VF32 decrease = weight_f32(hn::Sub(old_max, max));
    store(max, memory.max + column);
    store(decrease, memory.decrease + column);
    store(hn::MulAdd(load(memory.sum + column), decrease, sum), memory.sum + column);
  }
}

// Scales the rows of o whose maximum rose.
void decrease_rows(const ForwardMemory& memory, std::int64_t num_queries, std::size_t row) {
  for (std::int64_t i = 0; i < num_queries; ++i) {
    if (memory.decrease[i] == 1) continue;
    const VF32 by = hn::Set(F32(), memory.decrease[i]);
    float* const o = memory.o + static_cast<std::size_t>(i) * row;
    for (std::size_t c = 0; c < row; c += lanes_f32()) store(hn::Mul(by, load(o + c)), o + c);
  }
}

// Computes a query tile with all keys that it sees.
template <class T>
void query_tile(const AttentionForward& args, const QueryHead& of, const ForwardMemory& memory, std::int64_t tile) {
  const AttentionShape& shape = args.shape;
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  const std::int64_t num_queries = std::min(kTile, shape.queries - tile * kTile);
  const auto q = query_rows(args.q.as<T>(), shape, of);
  pack_rows<T>({q.row(tile * kTile), q.stride}, num_queries, columns, memory.q, row);
  transpose_tile(memory.q, row, num_queries, columns, shape.factor(), memory.qt);
  std::fill_n(memory.max, kTile, kLowest);
  std::fill_n(memory.sum, kTile, 0.0F);
  std::fill_n(memory.o, kTileRow * row, 0.0F);
  for (std::int64_t key_tile = 0; key_tile < tiles_of(shape.keys); ++key_tile) {
    const TilePair pair = tile_pair(shape, key_tile, tile);
    if (!is_seen(pair)) break;
    const auto first_key = static_cast<std::size_t>(key_tile) * kTileRow;
    const auto num_keys = static_cast<std::size_t>(pair.num_keys);
    multiply<false>({memory.k + first_key * row, row, 1}, {memory.qt, kTileRow}, {memory.weights, kTileRow}, num_keys,
                    whole_vectors(static_cast<std::size_t>(num_queries)), ScorePart{pair, columns});
    weigh_tile(memory, pair);
    decrease_rows(memory, num_queries, row);
    multiply<true>({memory.weights, 1, kTileRow}, {memory.v + first_key * row, row}, {memory.o, row},
                   static_cast<std::size_t>(num_queries), whole_vectors(columns), QueryPart{pair});
  }
  finish_rows<T>(args, of, memory, tile * kTile, num_queries, row);
}

void forward_piece(const AttentionForward& args, const AttentionPiece& piece, const ForwardMemory& memory) {
  with_activation_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const AttentionShape& shape = args.shape;
    const auto columns = static_cast<std::size_t>(shape.head_columns);
    const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
    pack_rows<T>(key_rows(args.k.as<T>(), shape, piece), shape.keys, columns, memory.k, row);
    pack_rows<T>(key_rows(args.v.as<T>(), shape, piece), shape.keys, columns, memory.v, row);
    for_each_query_head(shape, piece, [&](const QueryHead& of, std::int64_t /*h*/) {
      for (std::int64_t tile = piece.first_tile; tile < tiles_of(shape.queries); tile += piece.tile_step) {
        query_tile<T>(args, of, memory, tile);
      }
    });
  });
}

// Packs all data of a head of keys that tile pairs read.
template <class T>
void pack_keys(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory) {
  const AttentionShape& shape = args.shape;
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  pack_rows<T>(key_rows(args.k.as<T>(), shape, piece), shape.keys, columns, memory.k, row);
  pack_rows<T>(key_rows(args.v.as<T>(), shape, piece), shape.keys, columns, memory.v, row);
}

// Packs all data of a head of queries.
template <class T>
void pack_queries(const AttentionBackward& args, const QueryHead& of, const BackwardMemory& memory) {
  const AttentionShape& shape = args.shape;
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  const auto o = packed_rows(args.o.as<T>(), shape, of);
  const auto d_o = packed_rows(args.d_o.as<T>(), shape, of);
  pack_rows<T>(query_rows(args.q.as<T>(), shape, of), shape.queries, columns, memory.q, row);
  pack_rows<T>(d_o, shape.queries, columns, memory.d_o, row);
  std::fill_n(memory.lse, tiles_of(shape.queries) * kTile, 0.0F);
  std::copy_n(lse_of(args.lse.as<float>(), shape, of), shape.queries, memory.lse);
  std::fill_n(memory.delta, tiles_of(shape.queries) * kTile, 0.0F);
  for (std::int64_t i = 0; i < shape.queries; ++i) memory.delta[i] = delta_of(o.row(i), d_o.row(i), columns);
  for (std::int64_t tile = 0; tile < tiles_of(shape.queries); ++tile) {
    const std::int64_t num_queries = std::min(kTile, shape.queries - tile * kTile);
    const std::size_t rows_at = static_cast<std::size_t>(tile) * kTileRow * row;
    const std::size_t tile_at = static_cast<std::size_t>(tile) * kTileRow * columns;
    transpose_tile(memory.q + rows_at, row, num_queries, columns, shape.factor(), memory.qt + tile_at);
    transpose_tile(memory.d_o + rows_at, row, num_queries, columns, 1, memory.d_ot + tile_at);
  }
}

// Turns scores into weights, and gradients of weights into gradients of scores; 0 if a query does not see a key.
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

// Returns the row of dk and dv at which a key tile's gradients begin.
std::size_t gathered_row(const AttentionShape& shape, std::int64_t tile) {
  return shape.group() == 1 ? 0 : static_cast<std::size_t>(tile) * kTileRow;
}

// Adds a tile pair's contribution to dk and dv of the key tile and to dq.
void add_pair(const AttentionShape& shape, const BackwardMemory& memory, const TilePair& pair, std::size_t first_key,
              std::size_t gathered, std::size_t first_query) {
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
  multiply<true>({memory.weights, kTileRow, 1}, {memory.d_o + first_query * row, row},
                 {memory.dv + gathered * row, row}, num_keys, head_width, KeyPart{pair});
  multiply<true>({memory.d_scores, kTileRow, 1}, {memory.q + first_query * row, row}, {memory.dk + gathered * row, row},
                 num_keys, head_width, KeyPart{pair});
  multiply<true>({memory.d_scores, 1, kTileRow}, {k, row}, {memory.dq + first_query * row, row}, num_queries,
                 head_width, QueryPart{pair});
}

// Computes the gradients of a key tile, to which heads of queries add one after the other.
template <class T>
void key_tile(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory,
              std::int64_t tile, std::int64_t query_head) {
  const AttentionShape& shape = args.shape;
  const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
  const std::int64_t num_keys = std::min(kTile, shape.keys - tile * kTile);
  const std::size_t gathered = gathered_row(shape, tile);
  float* const dk = memory.dk + gathered * row;
  float* const dv = memory.dv + gathered * row;
  if (query_head == 0) {
    std::fill_n(dk, kTileRow * row, 0.0F);
    std::fill_n(dv, kTileRow * row, 0.0F);
  }
  for (std::int64_t query_tile = 0; query_tile < tiles_of(shape.queries); ++query_tile) {
    const TilePair pair = tile_pair(shape, tile, query_tile);
    if (!is_seen(pair)) continue;
    add_pair(shape, memory, pair, static_cast<std::size_t>(tile) * kTileRow, gathered,
             static_cast<std::size_t>(query_tile) * kTileRow);
  }
  if (query_head + 1 < shape.group()) return;
  const auto columns = static_cast<std::size_t>(shape.head_columns);
  const auto rows_of = [&](const Out& view) {
    const auto rows = key_rows(view.as<T>(), shape, piece);
    return HeadRows<T>{rows.row(tile * kTile), rows.stride};
  };
  unpack_rows(dk, row, num_keys, columns, shape.factor(), rows_of(args.dk));
  unpack_rows(dv, row, num_keys, columns, 1, rows_of(args.dv));
}

void backward_piece(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory) {
  with_activation_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const AttentionShape& shape = args.shape;
    const auto row = static_cast<std::size_t>(padded_columns(shape.head_columns));
    pack_keys<T>(args, piece, memory);
    for_each_query_head(shape, piece, [&](const QueryHead& of, std::int64_t h) {
      pack_queries<T>(args, of, memory);
      std::fill_n(memory.dq, static_cast<std::size_t>(shape.queries) * row, 0.0F);
      for (std::int64_t tile = 0; tile < tiles_of(shape.keys); ++tile) key_tile<T>(args, piece, memory, tile, h);
      unpack_rows(memory.dq, row, shape.queries, static_cast<std::size_t>(shape.head_columns), shape.factor(),
                  query_rows(args.dq.as<T>(), shape, of));
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(forward_piece);
HWY_EXPORT(backward_piece);
}  // namespace

void run_forward_piece(const AttentionForward& args, const AttentionPiece& piece, const ForwardMemory& memory) {
  HWY_DYNAMIC_DISPATCH(forward_piece)(args, piece, memory);
}

void run_backward_piece(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory) {
  HWY_DYNAMIC_DISPATCH(backward_piece)(args, piece, memory);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
