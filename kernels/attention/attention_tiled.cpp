#include "kernels/attention/attention_tiled.h"

#include <atomic>

#include <immintrin.h>

#include "kernels/gemm/amx_tiles.h"

namespace lockstep::kernels {
namespace {

core::BFloat16* take_bf16(ScratchCutter& cutter, std::int64_t elems) {
  return reinterpret_cast<core::BFloat16*>(cutter.take(elems / 2));
}

}  // namespace

TiledForwardMemory::TiledForwardMemory(const AttentionShape& shape, float* memory) {
  ScratchCutter cutter(memory);
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t keys = tiles_of(shape.keys) * kTile;
  k = take_bf16(cutter, keys * columns);
  vt = take_bf16(cutter, keys * columns);
  rows = take_bf16(cutter, kTile * columns);
  pairs = take_bf16(cutter, kTile * columns);
  qt_pairs = take_bf16(cutter, kTile * columns);
  weights = take_bf16(cutter, kTile * kTile);
  scores = cutter.take(kTile * kTile);
  ot = cutter.take(kTile * columns);
  o = cutter.take(kTile * columns);
  max = cutter.take(kTile);
  sum = cutter.take(kTile);
  elems = cutter.used();
}

TiledBackwardMemory::TiledBackwardMemory(const AttentionShape& shape, float* memory) {
  ScratchCutter cutter(memory);
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t queries = tiles_of(shape.queries) * kTile;
  rows = take_bf16(cutter, kTile * columns);
  pairs = take_bf16(cutter, kTile * columns);
  q_pairs = take_bf16(cutter, queries * columns);
  qt_pairs = take_bf16(cutter, queries * columns);
  d_o_pairs = take_bf16(cutter, queries * columns);
  d_ot_pairs = take_bf16(cutter, queries * columns);
  k = take_bf16(cutter, kTile * columns);
  kt = take_bf16(cutter, kTile * columns);
  v = take_bf16(cutter, kTile * columns);
  weights = take_bf16(cutter, kTile * kTile);
  d_scores = take_bf16(cutter, kTile * kTile);
  score_pairs = take_bf16(cutter, kTile * kTile);
  lse = cutter.take(queries);
  delta = cutter.take(queries);
  scores = cutter.take(kTile * kTile);
  d_weights = cutter.take(kTile * kTile);
  dqt = cutter.take(queries * columns);
  dq = cutter.take(kTile * columns);
  dk = cutter.take(gathered_keys(shape) * columns);
  dv = cutter.take(gathered_keys(shape) * columns);
  elems = cutter.used();
}

namespace {

// Orders memory accesses: the compiler does not know which memory tile instructions read and write.
inline void order_memory() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Compilers accept only a literal as a tile's number.
class AmxTiles {
 public:
  template <int kTile>
  LOCKSTEP_TILES void load(const void* from, std::int64_t row_bytes) {
    order_memory();
    if constexpr (kTile == 0) _tile_loadd(0, from, row_bytes);
    if constexpr (kTile == 1) _tile_loadd(1, from, row_bytes);
    if constexpr (kTile == 2) _tile_loadd(2, from, row_bytes);
    if constexpr (kTile == 3) _tile_loadd(3, from, row_bytes);
    if constexpr (kTile == 4) _tile_loadd(4, from, row_bytes);
    if constexpr (kTile == 5) _tile_loadd(5, from, row_bytes);
    if constexpr (kTile == 6) _tile_loadd(6, from, row_bytes);
    if constexpr (kTile == 7) _tile_loadd(7, from, row_bytes);
  }
  template <int kTile>
  LOCKSTEP_TILES void store(void* to, std::int64_t row_bytes) {
    if constexpr (kTile == 0) _tile_stored(0, to, row_bytes);
    if constexpr (kTile == 1) _tile_stored(1, to, row_bytes);
    if constexpr (kTile == 2) _tile_stored(2, to, row_bytes);
    if constexpr (kTile == 3) _tile_stored(3, to, row_bytes);
    order_memory();
  }
  template <int kTile>
  LOCKSTEP_TILES void zero() {
    if constexpr (kTile == 0) _tile_zero(0);
    if constexpr (kTile == 1) _tile_zero(1);
    if constexpr (kTile == 2) _tile_zero(2);
    if constexpr (kTile == 3) _tile_zero(3);
  }
  // One of the four tiles of sums, chosen by rows and columns.
  template <int kC, int kA, int kB>
  LOCKSTEP_TILES void multiply() {
    static_assert(kC == 2 * (kA - 4) + kB - 6);
    if constexpr (kC == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kC == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kC == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kC == 3) _tile_dpbf16ps(3, 5, 7);
  }

 private:
  TileShapes shapes_;
};

}  // namespace

TileUnit::TileUnit(int /*num_threads*/) {
  if (amx_usable()) make = [] { return std::unique_ptr<TileMultiplier>(new TileMultiplierOn<AmxTiles>()); };
}

}  // namespace lockstep::kernels
