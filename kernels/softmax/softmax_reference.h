// Reference: plain loops, for tests.
#pragma once

#include <cmath>

#include "kernels/base/reference_data.h"
#include "kernels/softmax/softmax.h"

namespace lockstep::kernels {

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
