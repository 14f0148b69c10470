// A layer's rows brought into the order of tiles, and back.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/parallel_layers/tiles.h"
#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::layer_bench {

class RowOrder {
 public:
  RowOrder(const parallel::Workspace& workspace, const Tiles& tiles);

  // Copies; where tiles do not reorder nobody needs them.
  void into_tiles(kernels::In rows, kernels::Out in_tiles) const { copy(from_.in(), rows, in_tiles); }
  void out_of_tiles(kernels::In in_tiles, kernels::Out rows) const { copy(to_.in(), in_tiles, rows); }

 private:
  void copy(kernels::In from_rows, kernels::In from, kernels::Out to) const;
  const parallel::Workspace& workspace_;
  parallel::Tensor from_, to_;  // i32: the row that lies in each place, the place of each row
};

// Likewise on the host.
std::vector<float> out_of_tiles(const Tiles& tiles, const std::vector<float>& in_tiles);

}  // namespace lockstep::layer_bench
