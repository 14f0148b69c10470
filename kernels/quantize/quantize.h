// Symmetric quantisation by blocks to codes of 8 or 4 bits, for compressed communication. Dettmers et al. 2022,
// arXiv:2110.02861, section 2. Everything is in f32 with each operation rounded, so that codes and scales have the same
// bits on every device: for the largest |x| of a block and the largest code, 127 or 7, scale = largest / 127 and code =
// round(x * (127 / largest)), to nearest, ties to even. A block whose largest |x| is below 127 times the smallest
// normal f32 (zeros included) has scale 0 and codes 0. A block that holds infinity or NaN has scale NaN and codes 0, so
// it dequantises to NaN: bad gradients stay visible. Two 4-bit codes share a byte, the first in its low half.
// Deterministic.
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

// Codes of 8 or 4 bits, in two's complement.
template <int kBits>
struct CodesOf {
  static_assert(kBits == 8 || kBits == 4);
  static constexpr float kLargest = kBits == 8 ? 127.0F : 7.0F;
  static constexpr core::DType kDType = kBits == 8 ? core::DType::i8 : core::DType::u8;
  static constexpr std::int64_t kInAByte = 8 / kBits;  // block sizes must be multiples of it
  // Blocks with a smaller largest |x| count as zeros: their scale would be subnormal, or 127 / largest infinite.
  static constexpr float kSmallestLargest = kLargest * 0x1p-126F;

  static constexpr std::int64_t bytes(std::int64_t count) { return (count + kInAByte - 1) / kInAByte; }
  static void check_shape(std::string_view kernel, std::int64_t count, std::int64_t block);
};
inline constexpr float kSmallestLargest = CodesOf<8>::kSmallestLargest;

template <int kBits>
struct QuantizeTo {
  using Codes = CodesOf<kBits>;
  std::int64_t count;
  std::int64_t block = 256;
  In x = {};        // [count] f32, bf16 or f16
  Out codes = {};   // [count] i8; for 4 bits [ceil(count / 2)] u8
  Out scales = {};  // [ceil(count / block)] f32

  std::string_view name() const { return kBits == 8 ? "quantize_int8" : "quantize_int4"; }
  void check_shape() const { Codes::check_shape(name(), count, block); }
  std::int64_t blocks() const { return (count + block - 1) / block; }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kActivations);
    visit("codes", self.codes, Codes::bytes(self.count), DTypes(Codes::kDType));
    visit("scales", self.scales, self.blocks(), kF32);
  }
};

// y = code * scale, computed in f32 and rounded to y's dtype. The largest number of a block may come back one unit in
// the last place larger, which for the largest f32 is infinity.
template <int kBits>
struct DequantizeFrom {
  using Codes = CodesOf<kBits>;
  std::int64_t count;
  std::int64_t block = 256;
  In codes = {};   // [count] i8; for 4 bits [ceil(count / 2)] u8
  In scales = {};  // [ceil(count / block)] f32
  Out y = {};      // [count] f32, bf16 or f16

  std::string_view name() const { return kBits == 8 ? "dequantize_int8" : "dequantize_int4"; }
  void check_shape() const { Codes::check_shape(name(), count, block); }
  std::int64_t blocks() const { return (count + block - 1) / block; }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("codes", self.codes, Codes::bytes(self.count), DTypes(Codes::kDType));
    visit("scales", self.scales, self.blocks(), kF32);
    visit("y", self.y, self.count, kActivations);
  }
};

using Quantize = QuantizeTo<8>;
using Dequantize = DequantizeFrom<8>;
using QuantizeInt4 = QuantizeTo<4>;
using DequantizeInt4 = DequantizeFrom<4>;

// Quantize: two FLOPs per block, one per element; Dequantize: one per element.
Cost cost_of(const Quantize& args);
Cost cost_of(const Dequantize& args);
Cost cost_of(const QuantizeInt4& args);
Cost cost_of(const DequantizeInt4& args);

void run_cpu(const Quantize& args, ThreadPool& pool);
void run_cpu(const Dequantize& args, ThreadPool& pool);
void run_cpu(const QuantizeInt4& args, ThreadPool& pool);
void run_cpu(const DequantizeInt4& args, ThreadPool& pool);
void run_cuda(const Quantize& args, CudaContext& cuda);
void run_cuda(const Dequantize& args, CudaContext& cuda);
void run_cuda(const QuantizeInt4& args, CudaContext& cuda);
void run_cuda(const DequantizeInt4& args, CudaContext& cuda);

}  // namespace lockstep::kernels
