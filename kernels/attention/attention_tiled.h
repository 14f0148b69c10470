// Attention in bf16 on a unit of tiles, and the products that the unit computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_pieces.h"

// Enables tile instructions for one function. The compiler generates none by itself, so the rest of such code runs on
// any x86-64.
#define LOCKSTEP_TILES __attribute__((target("amx-tile,amx-bf16")))

namespace lockstep::kernels {

// Products of bf16 matrices with f32 sums on a unit of tiles: AMX, or a program that emulates its instructions, so that
// everything around them is tested on machines without AMX. A tile is 16 rows of 64 bytes (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 1, chapter 18).

inline constexpr std::int64_t kTileBlock = 32;  // rows and columns of the result that tiles hold at a time

// c (+)= a b. Rows, columns and depth are multiples of kTileBlock.
struct TileProduct {
  const core::BFloat16* a;  // [rows][depth]
  std::int64_t a_row;       // elements from row to row
  const core::BFloat16* b;  // [depth / 2][columns][2]: two adjacent depths are paired
  std::int64_t b_row;       // elements from one pair of depths to the next
  float* c;                 // [rows][columns]
  std::int64_t c_row;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  bool add;
};

// For the thread that made it.
class TileMultiplier {
 public:
  TileMultiplier() = default;
  virtual ~TileMultiplier() = default;
  TileMultiplier(const TileMultiplier&) = delete;
  TileMultiplier& operator=(const TileMultiplier&) = delete;
  virtual void multiply(const TileProduct& product) = 0;
};

using MakeTileMultiplier = std::unique_ptr<TileMultiplier> (*)();

// Unit provides load<tile>(from, row_bytes), store<tile>(to, row_bytes), zero<tile>(), and multiply<c, a, b>(), which
// is TDPBF16PS.
template <class Unit>
class TileMultiplierOn final : public TileMultiplier {
 public:
  LOCKSTEP_TILES void multiply(const TileProduct& p) override {
    for (std::int64_t column = 0; column < p.columns; column += kTileBlock) {
      for (std::int64_t row = 0; row < p.rows; row += kTileBlock) {
        multiply_block(p, p.a + row * p.a_row, p.b + 2 * column, p.c + row * p.c_row + column);
      }
    }
  }

 private:
  static constexpr std::int64_t kRows = 16;
  static constexpr std::int64_t kDepth = 32;  // bf16 elements in a tile's row

  // Tiles 0 to 3 hold the sums, row by row; 4 and 5 hold a's rows, 6 and 7 b's columns.
  LOCKSTEP_TILES void multiply_block(const TileProduct& p, const core::BFloat16* a, const core::BFloat16* b, float* c) {
    const std::int64_t a_bytes = 2 * p.a_row;
    const std::int64_t b_bytes = 2 * p.b_row;
    const std::int64_t c_bytes = 4 * p.c_row;
    float* const low = c + kRows * p.c_row;
    if (p.add) {
      unit_.template load<0>(c, c_bytes);
      unit_.template load<1>(c + kRows, c_bytes);
      unit_.template load<2>(low, c_bytes);
      unit_.template load<3>(low + kRows, c_bytes);
    } else {
      unit_.template zero<0>();
      unit_.template zero<1>();
      unit_.template zero<2>();
      unit_.template zero<3>();
    }
    for (std::int64_t k = 0; k < p.depth; k += kDepth, a += kDepth, b += kDepth / 2 * p.b_row) {
      unit_.template load<4>(a, a_bytes);
      unit_.template load<6>(b, b_bytes);
      unit_.template multiply<0, 4, 6>();
      unit_.template load<7>(b + 2 * kRows, b_bytes);
      unit_.template multiply<1, 4, 7>();
      unit_.template load<5>(a + kRows * p.a_row, a_bytes);
      unit_.template multiply<2, 5, 6>();
      unit_.template multiply<3, 5, 7>();
    }
    unit_.template store<0>(c, c_bytes);
    unit_.template store<1>(c + kRows, c_bytes);
    unit_.template store<2>(low, c_bytes);
    unit_.template store<3>(low + kRows, c_bytes);
  }

  Unit unit_;
};

// Attention in bf16 on a unit of tiles: its memory and its pieces. For the sources of this folder.
//
// The columns of all products are queries or the head's columns: scores are [keys][queries], o and dq are stored as
// [head columns][queries]. The softmax's output can then be used directly as a factor of the next product: rows of
// weights and of their gradients are a left factor, two adjacent rows a right one, and sums and maxima of a query run
// down columns.
//
// Arrays of bf16 are packed in whole blocks of kTileBlock, padded with zeros. "Pairs" are a right factor's layout:
// [depth / 2][columns][2].

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
