// Products of matrices on AMX: tiles, packed panels, and the functions that may use its instructions.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/gemm/gemm_product.h"

#define LOCKSTEP_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,prfchw")))

// Packs factors of products in the orders in which AMX tiles are loaded. A tile is 16 rows of 64 bytes:
//   of a   [16 rows of a][32 depths]
//   of b   [16 pairs of depths][16 columns of b][2 depths]
// A panel is 32 rows of a, or 32 columns of b, packed step by step of 32 depths: [step][part][2 tiles]. bf16 has one
// part. f32 has three parts, whose sum it is exactly: bf16 has 8 of f32's 24 significant bits.
//
// Call only if amx_usable().
namespace lockstep::kernels {

// Instructions that functions for AMX are compiled for, one by one: the build's baseline lacks them.

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

// Products of panels on AMX tiles, summed in f32 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
// 1, chapter 18; TDPBF16PS). Panels are described above.
//
// Call only if amx_usable().

// Returns whether the CPU has AMX with bf16 and AVX-512, and the system grants them to this process; requests them.
bool amx_usable();

// Loads the shapes that this thread's tile instructions need, during the object's lifetime.
class TileShapes {
 public:
  TileShapes();
  ~TileShapes();
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
};

// A block of sums and its destination in c: at most 32 x 32, rows `stride` apart.
struct StagedTile {
  Sums c;
  const float* sums = nullptr;  // null: none
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// sums[32][stride] (+)= a panel times b panel.
struct PanelProduct {
  const core::BFloat16* a;
  // Elements from row to row of a, from its upper to its lower tile, and from step to step: 32, 512 and 1024 if packed.
  std::int64_t a_row, a_half, a_step;
  const core::BFloat16* b;
  std::int64_t parts;  // 1, or 3 for f32
  std::int64_t steps;
  bool a_stays;  // a stays in the L1 cache for the next product; otherwise b does
  bool add;
  float* sums;
  std::int64_t stride;
};

// Memory that will be needed, prefetched line by line during the steps of products: many prefetches at once would wait
// for each other. Rows have `row_bytes`.
class Ahead {
 public:
  Ahead() = default;
  // Prefetches everything within `steps` steps.
  Ahead(const void* at, std::int64_t stride_bytes, std::int64_t row_bytes, std::int64_t rows, std::int64_t steps)
      : row_(static_cast<const char*>(at)), stride_bytes_(stride_bytes), row_bytes_(row_bytes), rows_(rows) {
    const std::int64_t lines = rows * ((row_bytes + kLine - 1) / kLine);
    share_ = (lines + steps - 1) / steps;
  }

  void step() {
    for (std::int64_t i = 0; i < share_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + offset_, 0, 2);  // into the L2 cache
      offset_ += kLine;
      if (offset_ < row_bytes_) continue;
      offset_ = 0;
      row_ += stride_bytes_;
      --rows_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* row_ = nullptr;
  std::int64_t stride_bytes_ = 0;
  std::int64_t row_bytes_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t offset_ = 0;
  std::int64_t share_ = 0;  // lines per step
};

// Data to prefetch during a product: 32 rows of 32 elements of c and of the other operand or result of its finish;
// panels that will be packed.
struct Prefetches {
  char* written = nullptr;  // null: none
  char* also = nullptr;     // likewise, with the same shape
  std::int64_t stride_bytes = 0;
  std::int64_t row_bytes = 0;
  Ahead* passing = nullptr;
  Ahead* staying = nullptr;
};

// Computes one product after another. The sums of a product leave the tiles during the next product's first step and
// are finished during its other steps, which leave the vector units idle.
class PanelMultiplier {
 public:
  // `then`: destination of the sums, or none.
  void multiply(const PanelProduct& panels, const StagedTile& then, const Prefetches& prefetches);
  // Returns when all sums have been stored.
  void flush();

 private:
  const TileShapes shapes_;
  float* held_ = nullptr;  // destination of the sums that the tiles hold
  std::int64_t held_stride_ = 0;
  StagedTile then_;
};

}  // namespace lockstep::kernels
