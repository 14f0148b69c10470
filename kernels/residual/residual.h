// y = a + b: a residual connection that is not followed by a norm with which it could be fused. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/reference_data.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct ResidualAdd {
  static constexpr std::array kInPlace{InPlace{"y", "a"}, InPlace{"y", "b"}};
  std::int64_t count;
  In a = {};   // [count]
  In b = {};   // [count]
  Out y = {};  // [count], may be a or b

  std::string_view name() const { return "residual_add"; }
  void check_shape() const { check_at_least(name(), "count", count, 1); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("a", self.a, self.count, kActivations);
    visit("b", self.b, self.count, DTypes(self.a.dtype));
    visit("y", self.y, self.count, DTypes(self.a.dtype));
  }
};

Cost cost_of(const ResidualAdd& args);

void run_cpu(const ResidualAdd& args, ThreadPool& pool);
void run_cuda(const ResidualAdd& args, CudaContext& cuda);

// Reference: a plain loop, for tests.

template <class S>
void reference(const ResidualAdd& /*args*/, ReferenceData<S>& data) {
  const auto a = data["a"];
  const auto b = data["b"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
}

}  // namespace lockstep::kernels
