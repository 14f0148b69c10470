// Activation functions of MLPs: GELU, and SwiGLU with its gate.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// GELU in its tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks, Gimpel 2016, arXiv:1606.08415,
// section 2; the form that GPT-2 uses. Deterministic. NaN gives NaN; +inf gives +inf; -inf gives -0.
struct GeluForward {
  static constexpr std::array kInPlace{InPlace{"y", "x"}};
  std::int64_t count;
  In x = {};   // [count]
  Out y = {};  // [count], may be x

  std::string_view name() const { return "gelu_fwd"; }
  void check_shape() const { check_at_least(name(), "count", count, 1); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kActivations);
    visit("y", self.y, self.count, DTypes(self.x.dtype));
  }
};

// dx = dy * gelu'(x); gelu' is 1 at +inf and 0 at -inf.
struct GeluBackward {
  static constexpr std::array kInPlace{InPlace{"dx", "dy"}};
  std::int64_t count;
  In x = {};    // [count], the forward's
  In dy = {};   // [count]
  Out dx = {};  // [count], may be dy

  std::string_view name() const { return "gelu_bwd"; }
  void check_shape() const { check_at_least(name(), "count", count, 1); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, kActivations);
    visit("dy", self.dy, self.count, DTypes(self.x.dtype));
    visit("dx", self.dx, self.count, DTypes(self.x.dtype));
  }
};

// 9 FLOPs per element forward, 18 backward, as the reference computes them.
Cost cost_of(const GeluForward& args);
Cost cost_of(const GeluBackward& args);

void run_cpu(const GeluForward& args, ThreadPool& pool);
void run_cpu(const GeluBackward& args, ThreadPool& pool);
void run_cuda(const GeluForward& args, CudaContext& cuda);
void run_cuda(const GeluBackward& args, CudaContext& cuda);

// Reference: plain loops, for tests.

inline constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

template <class S>
S gelu_reference(S x) {
  using std::tanh;
  const S inner = S(kGeluScale) * x * (S(1) + S(kGeluCubic) * x * x);
  return S(0.5) * x * (S(1) + tanh(inner));
}

// The derivative, with t = tanh(u): (1 + t) / 2 + x/2 (1 - t^2) u'.
template <class S>
S gelu_slope_reference(S x) {
  using std::tanh;
  const S cubic = S(kGeluCubic) * x * x;
  const S t = tanh(S(kGeluScale) * x * (S(1) + cubic));
  const S inner_slope = S(kGeluScale) * (S(1) + S(3) * cubic);
  return S(0.5) * (S(1) + t) + S(0.5) * x * (S(1) - t * t) * inner_slope;
}

template <class S>
void reference(const GeluForward& /*args*/, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = gelu_reference(x[i]);
}

template <class S>
void reference(const GeluBackward& /*args*/, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto dy = data["dy"];
  const auto dx = data["dx"];
  for (std::size_t i = 0; i < x.size(); ++i) dx[i] = dy[i] * gelu_slope_reference(x[i]);
}

// SwiGLU: y = silu(gate) up, where silu(g) = g / (1 + e^-g). Shazeer 2020, arXiv:2002.05202, equation 6, without the
// products before and after it. Gate and up are adjacent, as one product with both matrices writes them: a row is the
// gate's columns followed by the up's. Deterministic. NaN gives NaN; a gate of +inf gives infinity with the sign of up;
// a gate of -inf gives 0 times up.
struct SwigluForward {
  std::int64_t rows;
  std::int64_t columns;
  In x = {};   // [rows, 2, columns]: gate, up
  Out y = {};  // [rows, columns]

  std::string_view name() const { return "swiglu_fwd"; }
  void check_shape() const { check_sizes(name(), {{"rows", rows}, {"columns", columns}}); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, 2 * self.rows * self.columns, kActivations);
    visit("y", self.y, self.rows * self.columns, DTypes(self.x.dtype));
  }
};

// The gate's gradient is dy up silu'(gate), where silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + e^-g); up's is
// dy silu(gate).
struct SwigluBackward {
  static constexpr std::array kInPlace{InPlace{"dx", "x"}};
  std::int64_t rows;
  std::int64_t columns;
  In x = {};    // [rows, 2, columns], the forward's
  In dy = {};   // [rows, columns]
  Out dx = {};  // [rows, 2, columns], may be x

  std::string_view name() const { return "swiglu_bwd"; }
  void check_shape() const { check_sizes(name(), {{"rows", rows}, {"columns", columns}}); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, 2 * self.rows * self.columns, kActivations);
    visit("dy", self.dy, self.rows * self.columns, DTypes(self.x.dtype));
    visit("dx", self.dx, 2 * self.rows * self.columns, DTypes(self.x.dtype));
  }
};

// 4 FLOPs per column forward, 11 backward, as the reference computes them.
Cost cost_of(const SwigluForward& args);
Cost cost_of(const SwigluBackward& args);

void run_cpu(const SwigluForward& args, ThreadPool& pool);
void run_cpu(const SwigluBackward& args, ThreadPool& pool);
void run_cuda(const SwigluForward& args, CudaContext& cuda);
void run_cuda(const SwigluBackward& args, CudaContext& cuda);

// Reference: plain loops, for tests.

// Calls visit(gate, up, position in a [rows, columns] array) with positions in x.
template <class Args, class Visit>
void for_each_gate(const Args& args, Visit&& visit) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    for (std::size_t c = 0; c < columns; ++c) visit(2 * r * columns + c, (2 * r + 1) * columns + c, r * columns + c);
  }
}

template <class S>
void reference(const SwigluForward& args, ReferenceData<S>& data) {
  using std::exp;
  const auto x = data["x"];
  const auto y = data["y"];
  for_each_gate(args, [&](std::size_t gate, std::size_t up, std::size_t at) {
    y[at] = x[gate] / (S(1) + exp(-x[gate])) * x[up];
  });
}

template <class S>
void reference(const SwigluBackward& args, ReferenceData<S>& data) {
  using std::exp;
  const auto x = data["x"];
  const auto dy = data["dy"];
  const auto dx = data["dx"];
  for_each_gate(args, [&](std::size_t gate, std::size_t up, std::size_t at) {
    const S g = x[gate];
    const S s = S(1) / (S(1) + exp(-g));
    dx[gate] = dy[at] * x[up] * (s * (S(1) + g * (S(1) - s)));
    dx[up] = dy[at] * (g * s);
  });
}

}  // namespace lockstep::kernels
