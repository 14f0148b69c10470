// Packs factors of products in the orders in which AMX tiles are loaded. A tile is 16 rows of 64 bytes:
//   of a   [16 rows of a][32 depths]
//   of b   [16 pairs of depths][16 columns of b][2 depths]
// A panel is 32 rows of a, or 32 columns of b, packed step by step of 32 depths: [step][part][2 tiles]. bf16 has one
// part. f32 has three parts, whose sum it is exactly: bf16 has 8 of f32's 24 significant bits.
//
// Call only if amx_usable().
#pragma once

#include <cstdint>

#include "core/narrow_float.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileDepth = 32;
inline constexpr std::int64_t kTileElems = kTileRows * kTileDepth;
inline constexpr std::int64_t kPanel = 2 * kTileRows;

inline std::int64_t parts_of(core::DType dtype) {
  return dtype == core::DType::bf16 ? 1 : 3;
}

// Lines are rows of a or columns of b. Lines past the end, and depths past it, are packed as zeros.
struct PanelSource {
  const void* data;
  core::DType dtype;  // bf16 or f32
  bool of_a;
  std::int64_t line_stride;  // in elements; either this or depth_stride is 1
  std::int64_t depth_stride;
  std::int64_t lines;  // at most 32
  std::int64_t depth;

  std::int64_t tiles() const { return (depth + kTileDepth - 1) / kTileDepth * 2; }
};

// Packs the panel into `out`. Returns false if one of its numbers is infinite, NaN, or would become infinite as a bf16
// part: the parts then do not add up to it. (bf16 itself is always copied.)
bool pack_panel(const PanelSource& from, core::BFloat16* out);

}  // namespace lockstep::kernels
