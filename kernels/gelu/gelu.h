// GELU in its tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks, Gimpel 2016, arXiv:1606.08415,
// section 2; the form that GPT-2 uses. Deterministic. NaN gives NaN; +inf gives +inf; -inf gives -0.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/reference_data.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

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

}  // namespace lockstep::kernels
