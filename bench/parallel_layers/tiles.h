// Rows of a layer that are cut into tiles, each of which is exchanged beside the product of another.
//
// Without sequence parallelism a tile is a run of rows. With it a tile has as many rows of each rank's share, so that a
// reduce-scatter leaves every rank the next rows of its own, and a gather brings some of all. A layer then keeps its
// rows in the order of tiles, so that a tile is one product: 2 ranks, 2 tiles, 8 rows:
//
//   row            0 1 2 3 | 4 5 6 7      of rank 0 | of rank 1
//   in this order  0 1 4 5 | 2 3 6 7      tile 0 | tile 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/parallel_layers/pass.h"
#include "bench/parallel_layers/shape.h"

namespace lockstep::layer_bench {

struct Tile {
  std::int64_t number;
  std::int64_t first;  // of its rows, which lie side by side
  std::int64_t rows;
  int ready = kNothing;  // what has to be exchanged before they are there
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

  // Whether rows lie in another order than theirs.
  bool reorders() const { return sharing.sequence_parallel && sharing.tiles > 1; }
  // The row that lies in each place.
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

}  // namespace lockstep::layer_bench
