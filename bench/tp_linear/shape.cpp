#include "bench/tp_linear/shape.h"

#include <algorithm>
#include <cstddef>

#include "bench/tp_linear/nodes.h"
#include "parallel/layers/layers.h"

namespace lockstep::tp_linear {

RowOrder::RowOrder(const parallel::Workspace& workspace, const Tiles& tiles) : workspace_(workspace) {
  const std::vector<std::int32_t> order = tiles.order();
  std::vector<std::int32_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    places[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  }
  from_ = ids_of(workspace.memory, order);
  to_ = ids_of(workspace.memory, places);
}

// Copies rows with the kernel of an embedding, which looks rows up.
void RowOrder::copy(kernels::In from_rows, kernels::In from, kernels::Out to) const {
  const std::int64_t rows = from_rows.elems;
  const parallel::EmbeddingLayer rows_of{rows, rows, from.elems / rows, {rows, rows, 0}};
  rows_of.forward(workspace_, from_rows, from, {}, to);
}

std::vector<float> out_of_tiles(const Tiles& tiles, const std::vector<float>& in_tiles) {
  const std::vector<std::int32_t> order = tiles.order();
  const std::size_t columns = in_tiles.size() / order.size();
  std::vector<float> rows(in_tiles.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = in_tiles.begin() + static_cast<std::ptrdiff_t>(i * columns);
    std::copy_n(from, columns,
                rows.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(order[i]) * columns));
  }
  return rows;
}

}  // namespace lockstep::tp_linear
