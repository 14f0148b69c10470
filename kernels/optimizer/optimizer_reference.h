// Reference: plain loops, for tests.
#pragma once

#include <cmath>

#include "kernels/base/reference_data.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {

template <class S>
void reference(const AdamW& args, ReferenceData<S>& data) {
  using std::sqrt;
  const S b1 = S(args.beta1);
  const S b2 = S(args.beta2);
  S rate = S(args.rate);
  S correction1 = S(1 - std::pow(static_cast<double>(args.beta1), static_cast<double>(args.step)));
  S correction2 = S(1 - std::pow(static_cast<double>(args.beta2), static_cast<double>(args.step)));
  if (args.scheduled) {
    rate = data["schedule"][0];
    correction1 = data["schedule"][1];
    correction2 = data["schedule"][2];
  }
  const auto grad = data["grad"];
  const auto w = data["master"];
  const auto m = data["m"];
  const auto v = data["v"];
  const auto weights = data["weights"];
  const S factor = S(args.grad_scale) * data["clip"][0];
  const bool counts = data["clip"][0] > S(0);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const S g = grad[i] * factor;
    const S next_m = b1 * m[i] + (S(1) - b1) * g;
    const S next_v = b2 * v[i] + (S(1) - b2) * g * g;
    const S direction = next_m / correction1 / (sqrt(next_v / correction2) + S(args.epsilon));
    const S next_w = w[i] - rate * (direction + S(args.decay) * w[i]);
    if (!counts) continue;
    m[i] = next_m;
    v[i] = next_v;
    w[i] = next_w;
    if (args.narrow_weights) weights[i] = next_w;
  }
}

template <class S>
void reference(const SgdMomentum& args, ReferenceData<S>& data) {
  const auto grad = data["grad"];
  const auto w = data["master"];
  const auto momentum = data["momentum"];
  const auto weights = data["weights"];
  const S factor = S(args.grad_scale) * data["clip"][0];
  const bool counts = data["clip"][0] > S(0);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const S next = S(args.mu) * momentum[i] + grad[i] * factor + S(args.decay) * w[i];
    const S next_w = w[i] - S(args.rate) * next;
    if (!counts) continue;
    momentum[i] = next;
    w[i] = next_w;
    if (args.narrow_weights) weights[i] = next_w;
  }
}

template <class S>
void reference(const SumOfSquares& /*args*/, ReferenceData<S>& data) {
  S sum = S(0);
  for (const S& x : data["x"]) sum += x * x;
  data["sum"][0] = sum;
}

template <class S>
void reference(const ClipFactor& args, ReferenceData<S>& data) {
  using std::sqrt;
  const auto sums = data["sums"];
  S sum = sums[0];
  for (std::size_t i = 1; i < sums.size(); ++i) sum += sums[i];
  const S norm = S(args.grad_scale) * sqrt(sum);
  const double scale = static_cast<double>(args.grad_scale);
  const S factor = S(scale * static_cast<double>(args.most)) / (norm + S(kClipEpsilon));
  data["factor"][0] = factor > S(scale) ? S(scale) : factor;
  data["norm"][0] = norm;
}

template <class S>
void reference(const FiniteCheck& /*args*/, ReferenceData<S>& data) {
  bool finite = true;
  using std::abs;
  for (const S& x : data["x"]) {
    if (!(abs(x) < S(INFINITY))) finite = false;
  }
  data["finite"][0] = S(finite ? 1 : 0);
}

}  // namespace lockstep::kernels
