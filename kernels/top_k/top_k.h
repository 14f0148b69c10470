// The elements of largest magnitude, for sparse exchange of gradients (Aji and Heafield 2017, arXiv:1704.05021; Lin et
// al. 2018, Deep Gradient Compression, arXiv:1712.01887), and their sums.
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

// Maps f32 to integers that order by magnitude; NaN is above infinity.
inline std::uint32_t magnitude_key(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
}

// The k elements of largest |x|, among equal ones those of lower index, in the order of their indices. Elements with
// |x| below `at` are not taken; the rest of values and indices is then 0 and -1. NaN counts as larger than anything, so
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
