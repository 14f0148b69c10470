#include "kernels/attention/attention.h"
#include "kernels/attention/attention_pieces.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_forward.cpp"
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
  finish_rows<T>(args, of, {memory.o, memory.max, memory.sum, 1}, tile * kTile, num_queries, row);
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(forward_piece);
}  // namespace

void run_forward_piece(const AttentionForward& args, const AttentionPiece& piece, const ForwardMemory& memory) {
  HWY_DYNAMIC_DISPATCH(forward_piece)(args, piece, memory);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
