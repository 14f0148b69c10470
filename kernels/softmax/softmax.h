// Softmax over rows: y = exp(x - max) / sum exp(x - max), computed in f32, and its backward. Deterministic. A row that
// holds NaN becomes all NaN; -infinity gives 0 if the row's maximum is finite.
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

struct SoftmaxForward {
  static constexpr std::array kInPlace{InPlace{"y", "x"}};
  std::int64_t rows;
  std::int64_t columns;
  In x = {};   // [rows, columns]
  Out y = {};  // [rows, columns], may be x

  std::string_view name() const { return "softmax_fwd"; }
  void check_shape() const {
    check_at_least(name(), "rows", rows, 1);
    check_at_least(name(), "columns", columns, 1);
  }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.rows * self.columns, kActivations);
    visit("y", self.y, self.rows * self.columns, DTypes(self.x.dtype));
  }
};

// dx = y * (dy - sum of y * dy over the row).
struct SoftmaxBackward {
  static constexpr std::array kInPlace{InPlace{"dx", "dy"}};
  std::int64_t rows;
  std::int64_t columns;
  In y = {};    // [rows, columns], the forward's result
  In dy = {};   // [rows, columns]
  Out dx = {};  // [rows, columns], may be dy

  std::string_view name() const { return "softmax_bwd"; }
  void check_shape() const {
    check_at_least(name(), "rows", rows, 1);
    check_at_least(name(), "columns", columns, 1);
  }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("y", self.y, self.rows * self.columns, kActivations);
    const DTypes same(self.y.dtype);
    visit("dy", self.dy, self.rows * self.columns, same);
    visit("dx", self.dx, self.rows * self.columns, same);
  }
};

Cost cost_of(const SoftmaxForward& args);
Cost cost_of(const SoftmaxBackward& args);

void run_cpu(const SoftmaxForward& args, ThreadPool& pool);
void run_cpu(const SoftmaxBackward& args, ThreadPool& pool);
void run_cuda(const SoftmaxForward& args, CudaContext& cuda);
void run_cuda(const SoftmaxBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
