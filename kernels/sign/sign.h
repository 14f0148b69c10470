// One bit per element, its sign, and a scale per block, the mean |x|: replacing elements by +-scale keeps a block's
// mean magnitude. Seide et al. 2014 (1-bit SGD), section 3.1; Karimireddy et al. 2019, arXiv:1901.09847, algorithm 1
// (scaled sign), by blocks. Bits of a byte start at its lowest; a set bit means that x is negative (including -0). A
// block that holds infinity or NaN has scale NaN, so it decodes to NaN: bad gradients stay visible. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

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

}  // namespace lockstep::kernels
