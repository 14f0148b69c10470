// Reorders a layer's rows into tile order and back.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/tp_linear/tiles.h"
#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::tp_linear {

class RowOrder {
 public:
  RowOrder(const parallel::Workspace& workspace, const Tiles& tiles);

  // Copies; not needed if tiles do not reorder.
  void into_tiles(kernels::In rows, kernels::Out in_tiles) const { copy(from_.in(), rows, in_tiles); }
  void out_of_tiles(kernels::In in_tiles, kernels::Out rows) const { copy(to_.in(), in_tiles, rows); }

 private:
  void copy(kernels::In from_rows, kernels::In from, kernels::Out to) const;
  const parallel::Workspace& workspace_;
  parallel::Tensor from_, to_;  // i32: the row at each position, the position of each row
};

// The same on the host.
std::vector<float> out_of_tiles(const Tiles& tiles, const std::vector<float>& in_tiles);

}  // namespace lockstep::tp_linear
