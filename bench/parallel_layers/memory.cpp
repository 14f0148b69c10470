#include "bench/parallel_layers/memory.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/size.h"

namespace lockstep::layer_bench {
namespace {

struct Elems {
  std::int64_t weights;  // with gradients in f32
  std::int64_t activations;
};

// Of one rank.
Elems elems_of(BlockKind kind, const Shape& shape, std::int64_t ranks) {
  const std::int64_t rows = shape.rows() * shape.hidden;            // of all, h wide
  const std::int64_t square = shape.hidden * shape.hidden / ranks;  // a rank's share
  const std::int64_t words = shape.vocabulary / ranks + 1;
  switch (kind) {
    case BlockKind::column:
    case BlockKind::row:
      return {4 * square, 4 * rows + 8 * rows / ranks};
    case BlockKind::mlp:
      return {8 * square, 6 * rows + 12 * rows / ranks};
    case BlockKind::attention:
      return {4 * square, 6 * rows + 8 * rows / ranks};
    case BlockKind::embedding:
      return {words * shape.hidden, 3 * rows};
    default:
      return {words * shape.hidden, rows + 2 * shape.rows() * words};
  }
}

std::int64_t bytes_of(const Elems& elems, const Shape& shape) {
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(shape.dtype));
  constexpr std::int64_t kF32 = 4;
  const std::int64_t on_host = kF32 * (elems.weights + elems.activations / 4);  // results
  return elems.weights * (elem_bytes + kF32) + elems.activations * elem_bytes + on_host;
}

}  // namespace

std::int64_t needed_bytes(const Case& one, const Shape& shape) {
  const auto forms = static_cast<std::int64_t>(one.tiles.size());
  return bytes_of(elems_of(one.block, shape, 1), shape) +
         one.ranks * forms * bytes_of(elems_of(one.block, shape, one.ranks), shape);
}

void check_memory(const Case& one, const Shape& shape, std::int64_t available_bytes) {
  const std::int64_t needed = needed_bytes(one, shape);
  if (needed <= available_bytes) return;
  const bool has_words = one.block == BlockKind::embedding || one.block == BlockKind::cross_entropy;
  throw core::usage_error(
      fmt::format("--block {} on {} ranks needs about {}, and there are {}; what helps: a smaller {}, or fewer --tiles",
                  name_of(one.block), one.ranks, core::format_size(needed), core::format_size(available_bytes),
                  has_words ? "--vocabulary, --hidden, --batch or --length" : "--hidden, --batch or --length"));
}

}  // namespace lockstep::layer_bench
