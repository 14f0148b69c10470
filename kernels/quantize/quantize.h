// Symmetric int8 quantisation by blocks, for compressed communication. Dettmers et al. 2022, arXiv:2110.02861,
// section 2. All in f32, each operation rounded, so that codes and scales are the same bits on every device: with the
// largest |x| of a block, scale = largest / 127; code = round(x * (127 / largest)) to nearest even. A block whose
// largest is below 127 times the smallest normal f32 (zeros among them) has the scale 0 and codes 0. A block that holds
// infinity or NaN has the scale NaN and codes 0, and so dequantises to NaN: bad gradients stay visible. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/cost.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// Blocks with a smaller largest |x| are taken for zeros: their scale would be subnormal, or 127 / largest infinite.
inline constexpr float kSmallestLargest = 127 * 0x1p-126F;

struct Quantize {
  std::int64_t count;
  std::int64_t block = 256;
  In x = {};        // [count] f32, bf16 or f16
  Out codes = {};   // [count] i8
  Out scales = {};  // [ceil(count / block)] f32

  std::string_view name() const { return "quantize_int8"; }
  void check_shape() const;
  std::int64_t blocks() const { return (count + block - 1) / block; }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kActivations);
    visit("codes", self.codes, self.count, DTypes(core::DType::i8));
    visit("scales", self.scales, self.blocks(), kF32);
  }
};

// y = code * scale, taken in f32 and rounded to y's dtype. The largest number of a block may come back one unit in the
// last place larger, which for the largest f32 itself is infinity.
struct Dequantize {
  std::int64_t count;
  std::int64_t block = 256;
  In codes = {};   // [count] i8
  In scales = {};  // [ceil(count / block)] f32
  Out y = {};      // [count] f32, bf16 or f16

  std::string_view name() const { return "dequantize_int8"; }
  void check_shape() const;
  std::int64_t blocks() const { return (count + block - 1) / block; }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("codes", self.codes, self.count, DTypes(core::DType::i8));
    visit("scales", self.scales, self.blocks(), kF32);
    visit("y", self.y, self.count, kActivations);
  }
};

// Quantize: two FLOPs a block, one an element; Dequantize: one an element.
Cost cost_of(const Quantize& args);
Cost cost_of(const Dequantize& args);

void run_cpu(const Quantize& args, ThreadPool& pool);
void run_cpu(const Dequantize& args, ThreadPool& pool);
void run_cuda(const Quantize& args, CudaContext& cuda);
void run_cuda(const Dequantize& args, CudaContext& cuda);

}  // namespace lockstep::kernels
