// Symmetric quantisation by blocks to codes of 8 or 4 bits, for compressed communication. Dettmers et al. 2022,
// arXiv:2110.02861, section 2. Everything is in f32 with each operation rounded, so that codes and scales have the same
// bits on every device: for the largest |x| of a block and the largest code, 127 or 7, scale = largest / 127 and code =
// round(x * (127 / largest)), to nearest, ties to even. A block whose largest |x| is below 127 times the smallest
// normal f32 (zeros included) has scale 0 and codes 0. A block that holds infinity or NaN has scale NaN and codes 0, so
// it dequantises to NaN: bad gradients stay visible. Two 4-bit codes share a byte, the first in its low half.
// Deterministic.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

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
  static constexpr std::int64_t kCodesPerByte = 8 / kBits;  // block sizes must be its multiples
  // Blocks with a smaller largest |x| count as zeros: their scale would be subnormal, or 127 / largest infinite.
  static constexpr float kSmallestLargest = kLargest * 0x1p-126F;

  static constexpr std::int64_t bytes(std::int64_t count) { return (count + kCodesPerByte - 1) / kCodesPerByte; }
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

// Reference: plain loops, for tests. Each result is rounded to f32: the quotient and the product of two f32, rounded
// from f64 to f32, equal the results of f32 arithmetic, so codes can be compared exactly.

inline double in_f32(double x) {
  return static_cast<double>(static_cast<float>(x));
}
inline Counted in_f32(Counted x) {
  return {in_f32(x.value())};
}

inline double nearest(double x) {
  return std::nearbyint(x);
}
inline Counted nearest(Counted x) {
  return round(x);
}

// Writes codes[i] if two share a byte; the other half of the byte is kept.
template <class S, class Codes>
void put_code(CodesOf<8> /*of*/, Codes& codes, std::size_t i, S code) {
  codes[i] = code;
}
template <class S, class Codes>
void put_code(CodesOf<4> /*of*/, Codes& codes, std::size_t i, S code) {
  const std::int64_t before = i % 2 == 0 ? 0 : integer_of(codes[i / 2]);
  codes[i / 2] = S(static_cast<double>(before | (integer_of(code) & 15) << (i % 2 * 4)));
}
template <class S, class Codes>
S get_code(CodesOf<8> /*of*/, const Codes& codes, std::size_t i) {
  return codes[i];
}
template <class S, class Codes>
S get_code(CodesOf<4> /*of*/, const Codes& codes, std::size_t i) {
  const std::int64_t bits = integer_of(codes[i / 2]) >> (i % 2 * 4) & 15;
  return S(static_cast<double>((bits ^ 8) - 8));
}

template <class S, int kBits>
void reference(const QuantizeTo<kBits>& args, ReferenceData<S>& data) {
  using Codes = CodesOf<kBits>;
  using std::abs;
  const auto x = data["x"];
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  for (std::int64_t block = 0; block < args.blocks(); ++block) {
    const auto begin = static_cast<std::size_t>(block * args.block);
    const std::size_t end = std::min(x.size(), begin + static_cast<std::size_t>(args.block));
    S largest = abs(x[begin]);
    bool finite = true;
    for (std::size_t i = begin; i < end; ++i) {
      if (largest < abs(x[i])) largest = abs(x[i]);
      if (!(abs(x[i]) < S(INFINITY))) finite = false;
    }
    const bool is_zero = largest < S(static_cast<double>(Codes::kSmallestLargest));
    S inverse = S(0);
    S& scale = scales[static_cast<std::size_t>(block)];
    scale = finite ? S(0) : S(NAN);
    if (finite && !is_zero) {
      scale = in_f32(largest / S(static_cast<double>(Codes::kLargest)));
      inverse = in_f32(S(static_cast<double>(Codes::kLargest)) / largest);
    }
    for (std::size_t i = begin; i < end; ++i) {
      put_code(Codes(), codes, i, finite ? nearest(in_f32(x[i] * inverse)) : S(0));
    }
  }
}

template <class S, int kBits>
void reference(const DequantizeFrom<kBits>& args, ReferenceData<S>& data) {
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = get_code<S>(CodesOf<kBits>(), codes, i) * scales[i / static_cast<std::size_t>(args.block)];
  }
}

}  // namespace lockstep::kernels
