// Rows of a layer split into tiles, so that the exchange of one tile overlaps with the product of another.
//
// Without sequence parallelism a tile is a run of rows. With it a tile has the same number of rows of each rank's
// share, so that a reduce-scatter leaves every rank with the next rows of its own share, and a gather collects rows
// from all. A layer then keeps its rows in tile order, so that a tile is one product: 2 ranks, 2 tiles, 8 rows:
//
//   row            0 1 2 3 | 4 5 6 7      of rank 0 | of rank 1
//   in this order  0 1 4 5 | 2 3 6 7      tile 0 | tile 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/tp_linear/pass.h"
#include "bench/tp_linear/shape.h"

namespace lockstep::tp_linear {

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

}  // namespace lockstep::tp_linear
