// A case of tp_linear_bench: sizes, the ranks that share a layer, and how they split it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/tp_linear/pass.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "parallel/layers/linear.h"
#include "parallel/memory/memory.h"

namespace lockstep::tp_linear {

enum class BlockKind : std::uint8_t { column, row, mlp, attention, embedding, cross_entropy };

enum class Direction : std::uint8_t { forward, backward };

struct Shape {
  std::int64_t batch = 4;     // b
  std::int64_t length = 128;  // s
  std::int64_t hidden = 256;  // h
  std::int64_t heads = 8;
  std::int64_t vocabulary = 8191;
  core::DType dtype = core::DType::f32;

  std::int64_t rows() const { return batch * length; }
  std::int64_t inner() const { return 4 * hidden; }
};

struct Sharing {
  int ranks = 1;
  int index = 0;
  bool sequence_parallel = false;
  int tiles = 1;
};

// Rows of a layer split into tiles, so that the exchange of one tile overlaps with the product of another.
//
// Without sequence parallelism a tile is a run of rows. With it a tile has the same number of rows of each rank's
// share, so that a reduce-scatter leaves every rank with the next rows of its own share, and a gather collects rows
// from all. A layer then keeps its rows in tile order, so that a tile is one product: 2 ranks, 2 tiles, 8 rows:
//
//   row            0 1 2 3 | 4 5 6 7      of rank 0 | of rank 1
//   in this order  0 1 4 5 | 2 3 6 7      tile 0 | tile 1

struct Tile {
  std::int64_t number;
  std::int64_t first;  // first of its rows, which are contiguous
  std::int64_t rows;
  int ready = kNothing;  // exchange that must end before they are available
};

struct Tiles {
  std::int64_t rows;
  Sharing sharing;

  std::int64_t tile_rows() const { return rows / sharing.tiles; }
  std::int64_t own_tile_rows() const { return tile_rows() / sharing.ranks; }  // with sequence parallelism
  Tile whole() const { return {0, 0, rows}; }
  std::vector<Tile> all() const {
    std::vector<Tile> tiles;
    for (std::int64_t t = 0; t < sharing.tiles; ++t) tiles.push_back({t, t * tile_rows(), tile_rows()});
    return tiles;
  }

  // True if tile order differs from row order.
  bool reorders() const { return sharing.sequence_parallel && sharing.tiles > 1; }
  // The row at each position.
  std::vector<std::int32_t> order() const {
    const std::int64_t shares = reorders() ? sharing.ranks : 1;
    const std::int64_t tiles = reorders() ? sharing.tiles : 1;
    const std::int64_t side_by_side = rows / shares / tiles;
    std::vector<std::int32_t> order;
    for (std::int64_t t = 0; t < tiles; ++t) {
      for (std::int64_t r = 0; r < shares; ++r) {
        const std::int64_t first = (r * tiles + t) * side_by_side;
        for (std::int64_t i = 0; i < side_by_side; ++i) order.push_back(static_cast<std::int32_t>(first + i));
      }
    }
    return order;
  }
};

// Reorders a layer's rows into tile order and back.

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
