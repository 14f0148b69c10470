#include "bench/parallel_layers/block.h"

#include <algorithm>

namespace lockstep::layer_bench {

std::unique_ptr<Block> make_block(BlockKind kind, const Place& place) {
  switch (kind) {
    case BlockKind::column:
      return make_column_block(place);
    case BlockKind::row:
      return make_row_block(place);
    case BlockKind::mlp:
      return make_mlp_block(place);
    case BlockKind::attention:
      return make_attention_block(place);
    case BlockKind::embedding:
      return make_embedding_block(place);
    default:
      return make_cross_entropy_block(place);
  }
}

Roundings roundings_of(BlockKind kind, const Shape& shape) {
  const std::int64_t rows = shape.rows();
  switch (kind) {
    case BlockKind::column:
    case BlockKind::row:
      return {std::max(rows, shape.inner()), 1};
    case BlockKind::mlp:
      return {std::max(rows, shape.hidden + shape.inner()), 3};
    case BlockKind::attention:  // of a score, of the weighted values, of the projection
      return {std::max(rows, 4 * shape.hidden + 2 * shape.length), 5};
    case BlockKind::embedding:
      return {rows, 1};
    default:  // a logit is larger than one: its rounding counts so often in its exponential
      return {shape.vocabulary + shape.hidden, 5};
  }
}

}  // namespace lockstep::layer_bench
