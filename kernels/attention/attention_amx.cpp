#include <immintrin.h>

#include <atomic>

#include "kernels/attention/attention_tiled.h"
#include "kernels/gemm/amx_tiles.h"

namespace lockstep::kernels {
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
