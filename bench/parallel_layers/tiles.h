// Rows of a product that is cut into tiles, each of which is exchanged beside the product of the next.
//
// Without sequence parallelism a tile is a run of rows. With it a tile has as many rows of each rank's share, so that a
// reduce-scatter leaves every rank the next rows of its own, and a gather brings some of all: in a tile's buffer these
// lie one rank after the other ("packed"), in a layer's rows they do not. 2 ranks, 2 tiles, 8 rows:
//
//   row     0 1 2 3 | 4 5 6 7      of rank 0 | of rank 1
//   packed  0 1 4 5 | 2 3 6 7      tile 0 | tile 1
#pragma once

#include <cstdint>
#include <vector>

#include "bench/parallel_layers/shape.h"

namespace lockstep::layer_bench {

struct Piece {
  std::int64_t row;     // of the layer, the first one
  std::int64_t packed;  // where it lies in the buffer of tiles
  std::int64_t rows;
};

struct Tiles {
  std::int64_t rows;
  Sharing sharing;

  std::int64_t tile_rows() const { return rows / sharing.tiles; }
  std::int64_t own_rows() const { return rows / sharing.ranks; }             // with sequence parallelism
  std::int64_t own_tile_rows() const { return own_rows() / sharing.tiles; }  // likewise
  // Which are one where their rows lie side by side.
  std::vector<Piece> pieces(int tile) const {
    if (!sharing.sequence_parallel || sharing.tiles == 1)
      return {{tile * tile_rows(), tile * tile_rows(), tile_rows()}};
    std::vector<Piece> pieces;
    for (int r = 0; r < sharing.ranks; ++r) {
      pieces.push_back(
          {r * own_rows() + tile * own_tile_rows(), tile * tile_rows() + r * own_tile_rows(), own_tile_rows()});
    }
    return pieces;
  }
};

}  // namespace lockstep::layer_bench
