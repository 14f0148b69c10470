#include "bench/parallel_layers/formulas.h"

namespace lockstep::layer_bench {

Transfers transfers_of(BlockKind kind, bool sequence_parallel) {
  const int again = sequence_parallel ? 1 : 0;
  switch (kind) {
    case BlockKind::column:
      return {.forward = sequence_parallel ? 1 : 0, .backward = (sequence_parallel ? 1 : 2) + again, .again = again};
    case BlockKind::row:
    case BlockKind::embedding:
      return {.forward = sequence_parallel ? 1 : 2, .backward = sequence_parallel ? 1 : 0};
    case BlockKind::mlp:
    case BlockKind::attention:
      return {.forward = 2, .backward = 2 + again, .again = again};
    case BlockKind::cross_entropy:
      break;
  }
  return {};
}

std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  const std::int64_t ranks = sharing.ranks;
  const std::int64_t others = ranks - 1;
  constexpr std::int64_t kStatsBytes = 12;  // three f32 a token
  if (kind == BlockKind::cross_entropy) return ranks * others * kStatsBytes * shape.rows();
  const Transfers transfers = transfers_of(kind, sharing.sequence_parallel);
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(shape.dtype));
  return (transfers.forward + transfers.backward) * others * shape.rows() * shape.hidden * elem_bytes;
}

}  // namespace lockstep::layer_bench
