// Compressed forms of gradients for exchanges: a sign per element with a scale per block, and the elements of largest
// magnitude.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// One bit per element, its sign, and a scale per block, the mean |x|: replacing elements by +-scale keeps a block's
// mean magnitude. Seide et al. 2014 (1-bit SGD), section 3.1; Karimireddy et al. 2019, arXiv:1901.09847, algorithm 1
// (scaled sign), by blocks. Bits of a byte start at its lowest; a set bit means that x is negative (including -0). A
// block that holds infinity or NaN has scale NaN, so it decodes to NaN: bad gradients stay visible. Deterministic.
struct EncodeSigns {
  std::int64_t count;
  std::int64_t block = 256;  // a multiple of 8
  In x = {};                 // [count] f32
  Out codes = {};            // [ceil(count / 8)] u8; bits past the last element are 0
  Out scales = {};           // [ceil(count / block)] f32

  std::string_view name() const { return "encode_signs"; }
  void check_shape() const;
  std::int64_t blocks() const { return (count + block - 1) / block; }
  std::int64_t code_elems() const { return (count + 7) / 8; }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kF32);
    visit("codes", self.codes, self.code_elems(), DTypes(core::DType::u8));
    visit("scales", self.scales, self.blocks(), kF32);
  }
};

// y = +scale or -scale.
struct DecodeSigns {
  std::int64_t count;
  std::int64_t block = 256;
  In codes = {};   // [ceil(count / 8)] u8
  In scales = {};  // [ceil(count / block)] f32
  Out y = {};      // [count] f32

  std::string_view name() const { return "decode_signs"; }
  void check_shape() const;
  std::int64_t blocks() const { return (count + block - 1) / block; }
  std::int64_t code_elems() const { return (count + 7) / 8; }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("codes", self.codes, self.code_elems(), DTypes(core::DType::u8));
    visit("scales", self.scales, self.blocks(), kF32);
    visit("y", self.y, self.count, kF32);
  }
};

Cost cost_of(const EncodeSigns& args);
Cost cost_of(const DecodeSigns& args);

void run_cpu(const EncodeSigns& args, ThreadPool& pool);
void run_cpu(const DecodeSigns& args, ThreadPool& pool);
void run_cuda(const EncodeSigns& args, CudaContext& cuda);
void run_cuda(const DecodeSigns& args, CudaContext& cuda);

// The elements of largest magnitude, for sparse exchange of gradients (Aji and Heafield 2017, arXiv:1704.05021; Lin et
// al. 2018, Deep Gradient Compression, arXiv:1712.01887), and their sums.

// Maps f32 to integers that order by magnitude; NaN is above infinity.
inline std::uint32_t magnitude_key(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
}

// The k elements of largest |x|, among equal ones the lower indices, in the order of their indices. Elements with |x|
// below `at` are not taken; the rest of values and indices is then 0 and -1. NaN counts as larger than anything, so
// that bad gradients are sent first. Exact and deterministic.
struct TopK {
  std::int64_t count;  // below 2^31
  std::int64_t k;      // 1 to count
  float at = 0;
  In x = {};         // [count] f32
  Out values = {};   // [k] f32
  Out indices = {};  // [k] i32

  std::string_view name() const { return "top_k"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kF32);
    visit("values", self.values, self.k, kF32);
    visit("indices", self.indices, self.k, DTypes(core::DType::i32));
  }
};

// y[indices[i]] += values[i] for distinct indices in [0, count), or -1 for none.
struct ScatterAdd {
  std::int64_t count;
  std::int64_t k;
  In values = {};   // [k] f32
  In indices = {};  // [k] i32
  InOut y = {};     // [count] f32

  std::string_view name() const { return "scatter_add"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("values", self.values, self.k, kF32);
    visit("indices", self.indices, self.k, DTypes(core::DType::i32));
    visit("y", self.y, self.count, kF32);
  }
};

Cost cost_of(const TopK& args);
Cost cost_of(const ScatterAdd& args);

void run_cpu(const TopK& args, ThreadPool& pool);
void run_cpu(const ScatterAdd& args, ThreadPool& pool);
void run_cuda(const TopK& args, CudaContext& cuda);
void run_cuda(const ScatterAdd& args, CudaContext& cuda);

}  // namespace lockstep::kernels
