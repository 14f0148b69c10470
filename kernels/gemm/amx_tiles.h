// Products of panels on AMX tiles (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18;
// TDPBF16PS), which sum in f32. amx_pack.h has the panels.
//
// To be called only where amx_usable().
#pragma once

#include <cstdint>

#include "core/narrow_float.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

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

// A block of sums on its way to c: at most 32 x 32, `stride` apart.
struct StagedTile {
  Sums c;
  const float* sums = nullptr;  // null: nothing
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// sums[32][stride] (+)= a panel times b panel.
struct PanelProduct {
  const core::BFloat16* a;
  // Elements from row to row of a, from its upper to its lower tile, and from step to step: if packed 32, 512, 1024.
  std::int64_t a_row, a_half, a_step;
  const core::BFloat16* b;
  std::int64_t parts;  // 1, or 3 of f32
  std::int64_t steps;
  bool a_stays;  // in the first-level cache, for the next product; or else b does
  bool add;
  float* sums;
  std::int64_t stride;
};

// Memory that is to be written soon: 32 rows of 32 elements, asked for ahead of time.
struct SoonWritten {
  char* at = nullptr;  // null: none
  std::int64_t stride_bytes = 0;
  std::int64_t row_bytes = 0;
};

// One product after another. The sums of a product leave the tiles during the next one's first step, and are finished
// during its other steps, which leave the vector units idle.
class PanelMultiplier {
 public:
  // `then`: what becomes of the sums, or nothing.
  void multiply(const PanelProduct& panels, const StagedTile& then, const SoonWritten& soon);
  // All sums are where they belong.
  void flush();

 private:
  const TileShapes shapes_;
  float* held_ = nullptr;  // where the sums that the tiles hold belong
  std::int64_t held_stride_ = 0;
  StagedTile then_;
};

}  // namespace lockstep::kernels
