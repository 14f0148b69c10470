// The obvious loops; for tests.
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
  if (!(data["clip"][0] > S(0))) return;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const S g = grad[i] * factor;
    m[i] = b1 * m[i] + (S(1) - b1) * g;
    v[i] = b2 * v[i] + (S(1) - b2) * g * g;
    const S direction = m[i] / correction1 / (sqrt(v[i] / correction2) + S(args.epsilon));
    w[i] = w[i] - rate * (direction + S(args.decay) * w[i]);
    if (args.narrow_weights) weights[i] = w[i];
  }
}

template <class S>
void reference(const SgdMomentum& args, ReferenceData<S>& data) {
  const auto grad = data["grad"];
  const auto w = data["master"];
  const auto momentum = data["momentum"];
  const auto weights = data["weights"];
  const S factor = S(args.grad_scale) * data["clip"][0];
  if (!(data["clip"][0] > S(0))) return;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    momentum[i] = S(args.mu) * momentum[i] + grad[i] * factor + S(args.decay) * w[i];
    w[i] = w[i] - S(args.rate) * momentum[i];
    if (args.narrow_weights) weights[i] = w[i];
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
  const S factor = S(args.most) / (norm + S(kClipEpsilon));
  data["factor"][0] = S(args.grad_scale) * (factor > S(1) ? S(1) : factor);
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
