// Matrices of 8-bit floats with scales: x is approximately code times the scale of its block. Micikevicius et al. 2022,
// arXiv:2209.05433: E4M3 for activations and weights, E5M2 for gradients. A block is the whole tensor, a row, or a tile
// of 1 x 128 or 128 x 128 (DeepSeek-AI 2024, arXiv:2412.19437, section 3.3.2).
//
// Scales are powers of two, the smallest that brings the block's largest |x| to at most the format's largest number
// (448 or 57344): code times scale is exact in f32, bf16 and f16, if it is in their range. A block of zeros has scale
// 1; one that holds infinity or NaN has scale NaN and codes NaN, so that bad values stay visible. Exponents of scales
// are clamped to [-126, 126]. Deterministic.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

inline constexpr DTypes kFp8{core::DType::f8e4m3, core::DType::f8e5m2};

// The largest number of either format is 1.75 * 2^top_exponent.
constexpr int top_exponent(core::DType fp8) {
  return fp8 == core::DType::f8e4m3 ? 8 : 15;
}
constexpr float largest_number(core::DType fp8) {
  return fp8 == core::DType::f8e4m3 ? 448.0F : 57344.0F;
}

// Returns the smallest power of two s with largest / s <= largest_number(fp8), its exponent in [-126, 126]; 1 for zero,
// NaN if `largest` is not finite.
float fp8_scale(float largest, core::DType fp8);

enum class ScalePer : std::uint8_t { tensor, row, tile, block };  // tile: 1 x 128; block: 128 x 128
std::string_view name_of(ScalePer per);
inline constexpr std::int64_t kScaleTile = 128;

// Blocks of a matrix that have one scale each: [block_rows, block_columns], smaller at the ends. Numbered along each
// row of blocks.
struct ScaleGrid {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t block_rows;
  std::int64_t block_columns;

  std::int64_t down() const { return (rows + block_rows - 1) / block_rows; }
  std::int64_t across() const { return (columns + block_columns - 1) / block_columns; }
  std::int64_t blocks() const { return down() * across(); }
};
ScaleGrid scale_grid(ScalePer per, std::int64_t rows, std::int64_t columns);

// Encodes. Current scaling uses the block's own largest |x|. Delayed scaling (NVIDIA's Transformer Engine, recipe
// DelayedScaling) uses the earlier maximum in `previous`; larger values now saturate. A block without history (0, or
// not finite) is scaled by the updated `raised`.
struct Fp8Encode {
  std::int64_t rows;  // rows of the codes
  std::int64_t columns;
  ScalePer per = ScalePer::tensor;
  core::DType to = core::DType::f8e4m3;
  bool delayed = false;
  bool transposed = false;  // x is [columns, rows]: codes[i, j] come from x[j, i]
  In x = {};                // [rows, columns], or transposed
  Out largest = {};         // [blocks], current scaling: the largest |x|; infinity or NaN if there is one
  In previous = {};         // [blocks], delayed scaling
  InOut raised = {};        // [blocks], delayed scaling: maximum of the previous content and the largest |x| now
  Out scales = {};          // [blocks]
  Out codes = {};           // [rows, columns]

  std::string_view name() const { return transposed ? "fp8_encode_transposed" : "fp8_encode"; }
  void check_shape() const;
  std::int64_t blocks() const { return scale_grid(per, rows, columns).blocks(); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.rows * self.columns, kActivations);
    if (self.delayed) {
      visit("previous", self.previous, self.blocks(), kF32);
      visit("raised", self.raised, self.blocks(), kF32);
    } else {
      visit("largest", self.largest, self.blocks(), kF32);
    }
    visit("scales", self.scales, self.blocks(), kF32);
    visit("codes", self.codes, self.rows * self.columns, DTypes(self.to));
  }
};

// y = code * scale, rounded to y's dtype (exact, see above).
struct Fp8Decode {
  std::int64_t rows;
  std::int64_t columns;
  ScalePer per = ScalePer::tensor;
  core::DType from = core::DType::f8e4m3;
  In codes = {};   // [rows, columns]
  In scales = {};  // [blocks]
  Out y = {};      // [rows, columns]

  std::string_view name() const { return "fp8_decode"; }
  void check_shape() const;
  std::int64_t blocks() const { return scale_grid(per, rows, columns).blocks(); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("codes", self.codes, self.rows * self.columns, DTypes(self.from));
    visit("scales", self.scales, self.blocks(), kF32);
    visit("y", self.y, self.rows * self.columns, kActivations);
  }
};

// One FLOP per element. Current scaling reads x twice if a block does not stay in a cache, delayed scaling once if
// blocks have history; one read is declared.
Cost cost_of(const Fp8Encode& args);
Cost cost_of(const Fp8Decode& args);

void run_cpu(const Fp8Encode& args, ThreadPool& pool);
void run_cpu(const Fp8Decode& args, ThreadPool& pool);
void run_cuda(const Fp8Encode& args, CudaContext& cuda);
void run_cuda(const Fp8Decode& args, CudaContext& cuda);

}  // namespace lockstep::kernels
