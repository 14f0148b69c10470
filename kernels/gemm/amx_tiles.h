// Factors of bf16 products in the orders that AMX tiles are loaded in (Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 1, chapter 18; TDPBF16PS). A tile is 16 rows of 64 bytes:
//   of a   [16 rows of a][32 depths]
//   of b   [16 pairs of depths][16 columns of b][2 depths]
// A panel is 32 rows of a, or 32 columns of b, over a depth that is padded with zeros to a multiple of 32.
//
// To be called only where amx_usable().
#pragma once

#include <cstdint>

#include "core/narrow_float.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileDepth = 32;
inline constexpr std::int64_t kPanel = 2 * kTileRows;

// Whether the CPU has AMX with bf16 and AVX-512, and the system lets this process use them: it is asked to.
bool amx_usable();

// Four tiles' instructions need their shapes loaded: this thread's, for as long as the object lives.
class TileShapes {
 public:
  TileShapes();
  ~TileShapes();
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
};

// `rows` (at most 32, the rest becomes zeros) of a over `depth`, as out[32][padded depth].
void pack_a_panel(const Factor& a, std::int64_t rows, std::int64_t depth, core::BFloat16* out);
// `columns` of b over `depth`, as out[padded depth / 32][2 tiles].
void pack_b_panel(const Factor& b, std::int64_t columns, std::int64_t depth, core::BFloat16* out);

// A block of sums on its way to c: at most 32 x 32, `stride` apart.
struct StagedTile {
  Sums c;
  const float* sums;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t columns;
};

// c = sums (+ bias, if it is not null), rounded to bf16, of rows `begin` to `end`: by the instruction for it,
// VCVTNE2PS2BF16, which takes subnormal numbers for zero, as TDPBF16PS does.
void store_as_bf16(const StagedTile& tile, std::int64_t begin, std::int64_t end);

// sums[32][stride] (+)= a panel times b panel. `a` has rows `a_stride` elements apart; `steps` of 32 depths.
struct PanelProduct {
  const core::BFloat16* a;
  std::int64_t a_stride;
  const core::BFloat16* b;
  std::int64_t steps;
  bool add;
  float* sums;
  std::int64_t stride;
  const float* next_sums;  // those of the product after this one, to be brought into the cache; null: none
  // Stored between this product's steps, which leave the vector units idle; may be in the same memory as `sums`. Null:
  // none.
  const StagedTile* before;
};
void multiply_panels(const PanelProduct& panels);

}  // namespace lockstep::kernels
