// Softmax over rows: y = exp(x - max) / sum exp(x - max), computed in f32, and its backward. Deterministic. A row that
// holds NaN becomes all NaN; -infinity gives 0 if the row's maximum is finite.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

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
  void check_shape() const { check_sizes(name(), {{"rows", rows}, {"columns", columns}}); }
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
  void check_shape() const { check_sizes(name(), {{"rows", rows}, {"columns", columns}}); }
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

// Reference: plain loops, for tests.

template <class S>
void softmax_row_reference(std::span<const S> x, std::span<S> y) {
  using std::exp;
  S max = x[0];
  for (const S& value : x) {
    if (value > max) max = value;
  }
  S sum = exp(x[0] - max);
  y[0] = sum;
  for (std::size_t c = 1; c < x.size(); ++c) {
    y[c] = exp(x[c] - max);
    sum += y[c];
  }
  for (S& value : y) value /= sum;
}

template <class S>
void reference(const SoftmaxForward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    softmax_row_reference<S>(data["x"].subspan(r * columns, columns), data["y"].subspan(r * columns, columns));
  }
}

template <class S>
void softmax_gradient_reference(std::span<const S> y, std::span<const S> dy, std::span<S> dx) {
  S sum = y[0] * dy[0];
  for (std::size_t c = 1; c < y.size(); ++c) sum += y[c] * dy[c];
  for (std::size_t c = 0; c < y.size(); ++c) dx[c] = y[c] * (dy[c] - sum);
}

template <class S>
void reference(const SoftmaxBackward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    softmax_gradient_reference<S>(data["y"].subspan(r * columns, columns), data["dy"].subspan(r * columns, columns),
                                  data["dx"].subspan(r * columns, columns));
  }
}

}  // namespace lockstep::kernels
