// Reference: plain loops, for tests.
#pragma once

#include <cmath>

#include "kernels/base/reference_data.h"
#include "kernels/gelu/gelu.h"

namespace lockstep::kernels {

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
