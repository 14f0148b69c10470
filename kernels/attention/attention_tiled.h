// Attention in bf16 on a unit of tiles (tile_product.h): its memory and its pieces. For the sources of this folder.
//
// The columns of all products are queries or the head's columns: scores are [keys][queries], o and dq are stored as
// [head columns][queries]. The softmax's output can then be used directly as a factor of the next product: rows of
// weights and of their gradients are a left factor, two adjacent rows a right one, and sums and maxima of a query run
// down columns.
//
// Arrays of bf16 are packed in whole blocks of kTileBlock, padded with zeros. "Pairs" are a right factor's layout:
// [depth / 2][columns][2].
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/narrow_float.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_pieces.h"
#include "kernels/attention/tile_product.h"

namespace lockstep::kernels {

// The unit of a pool's threads (ThreadPool::kept).
struct TileUnit {
  explicit TileUnit(int num_threads);
  MakeTileMultiplier make = nullptr;  // null if there is none
};

constexpr std::int64_t whole_blocks(std::int64_t count) {
  return (count + kTileBlock - 1) / kTileBlock * kTileBlock;
}

// Returns whether the unit computes it.
template <class Args>
bool is_tiled(const Args& args, ThreadPool& pool) {
  return args.q.dtype == core::DType::bf16 && args.shape.factor() > 0 && pool.kept<TileUnit>().make != nullptr;
}

// "columns" are the head's, in whole blocks; "keys" and "queries" are a head's, in whole tiles.
struct TiledForwardMemory {
  explicit TiledForwardMemory(const AttentionShape& shape, float* memory = nullptr);
  std::size_t elems;         // floats
  core::BFloat16* k;         // [keys][columns]
  core::BFloat16* vt;        // [key tiles][columns][kTile]
  core::BFloat16* rows;      // [kTile][columns], before they become other layouts
  core::BFloat16* pairs;     // [kTile / 2][columns][2], likewise
  core::BFloat16* qt_pairs;  // [columns / 2][kTile queries][2]
  core::BFloat16* weights;   // [kTile keys / 2][kTile queries][2]
  float* scores;             // [kTile keys][kTile queries]
  float* ot;                 // [columns][kTile queries]
  float* o;                  // [kTile][columns]
  float* max;                // [kTile], maximum of scores before scaling
  float* sum;                // [kTile]
};

struct TiledBackwardMemory {
  explicit TiledBackwardMemory(const AttentionShape& shape, float* memory = nullptr);
  std::size_t elems;            // floats
  core::BFloat16* rows;         // [kTile][columns], of queries, before they become other layouts
  core::BFloat16* pairs;        // [kTile / 2][columns][2], of keys, before they become kt
  core::BFloat16* q_pairs;      // [query tiles][kTile / 2][columns][2]
  core::BFloat16* qt_pairs;     // [query tiles][columns / 2][kTile][2]
  core::BFloat16* d_o_pairs;    // as q_pairs
  core::BFloat16* d_ot_pairs;   // as qt_pairs
  core::BFloat16* k;            // [kTile][columns]
  core::BFloat16* kt;           // [columns][kTile]
  core::BFloat16* v;            // [kTile][columns]
  core::BFloat16* weights;      // [kTile keys][kTile queries]
  core::BFloat16* d_scores;     // [kTile keys][kTile queries]
  core::BFloat16* score_pairs;  // [kTile keys / 2][kTile queries][2], copy of d_scores
  float* lse;                   // [queries], times log2 e
  float* delta;                 // [queries], o . d_o
  float* scores;                // [kTile keys][kTile queries]
  float* d_weights;             // [kTile keys][kTile queries]
  float* dqt;                   // [query tiles][columns][kTile]
  float* dq;                    // [kTile][columns]
  float* dk;                    // [gathered keys][columns]
  float* dv;                    // [gathered keys][columns]
};

void run_tiled_piece(const AttentionForward& args, const AttentionPiece& piece, const TiledForwardMemory& memory,
                     TileMultiplier& tiles);
void run_tiled_piece(const AttentionBackward& args, const AttentionPiece& piece, const TiledBackwardMemory& memory,
                     TileMultiplier& tiles);

}  // namespace lockstep::kernels
