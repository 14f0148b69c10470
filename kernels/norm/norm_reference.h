// Reference: plain loops, for tests.
#pragma once

#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/norm/norm.h"

namespace lockstep::kernels {

// Returns the input of the norm: with a residual, the sum as it is stored. Rounding is not counted as an operation.
template <class S>
S stored_sum(S value, core::DType dtype) {
  if constexpr (std::is_same_v<S, double>) {
    double memory = 0;  // large enough for any dtype
    store({&value, 1}, dtype, &memory);
    return load(dtype, &memory, 1)[0];
  }
  return value;
}

template <class S>
struct RowMoments {
  S mean;
  S rstd;
};

template <class S>
RowMoments<S> row_moments(Norm norm, std::span<const S> x, float epsilon) {
  using std::sqrt;
  const S count(static_cast<double>(x.size()));
  S mean(0);
  if (norm == Norm::layer) {
    for (const S& value : x) mean += value;
    mean /= count;
  }
  S square(0);
  for (const S& value : x) {
    const S centred = norm == Norm::layer ? value - mean : value;
    square += centred * centred;
  }
  return {mean, S(1) / sqrt(square / count + S(static_cast<double>(epsilon)))};
}

template <class S>
void reference(const NormForward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  const bool layer = args.norm == Norm::layer;
  const auto normalised = args.with_residual ? data["sum"] : data["x"];
  if (args.with_residual) {
    const auto x = data["x"];
    const auto residual = data["residual"];
    for (std::size_t i = 0; i < x.size(); ++i) normalised[i] = stored_sum(x[i] + residual[i], args.sum.dtype);
  }
  const auto gamma = data["gamma"];
  const auto beta = data["beta"];
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    const std::span<const S> x = normalised.subspan(r * columns, columns);
    const std::span<S> y = data["y"].subspan(r * columns, columns);
    const RowMoments<S> row = row_moments(args.norm, x, args.epsilon);
    for (std::size_t c = 0; c < columns; ++c) {
      y[c] = layer ? (x[c] - row.mean) * row.rstd * gamma[c] + beta[c] : x[c] * row.rstd * gamma[c];
    }
    if (layer) data["mean"][r] = row.mean;
    data["rstd"][r] = row.rstd;
  }
}

template <class S>
void reference(const NormBackward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  const S count(static_cast<double>(columns));
  const bool layer = args.norm == Norm::layer;
  const auto gamma = data["gamma"];
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    const std::span<const S> x = data["x"].subspan(r * columns, columns);
    const std::span<const S> dy = data["dy"].subspan(r * columns, columns);
    const S rstd = data["rstd"][r];
    std::vector<S> normal;    // normalised x, without the scale and shift
    std::vector<S> gradient;  // gradient of `normal`
    S mean(0);                // mean of the gradient
    S slope(0);               // slope of the gradient along `normal`
    for (std::size_t c = 0; c < columns; ++c) {
      normal.push_back(layer ? (x[c] - data["mean"][r]) * rstd : x[c] * rstd);
      gradient.push_back(dy[c] * gamma[c]);
      if (layer) mean += gradient[c];
      slope += gradient[c] * normal[c];
      data["dgamma"][c] += dy[c] * normal[c];
      if (layer) data["dbeta"][c] += dy[c];
    }
    if (layer) mean /= count;
    slope /= count;
    for (std::size_t c = 0; c < columns; ++c) {
      const S centred = layer ? gradient[c] - mean : gradient[c];
      const S dx = (centred - normal[c] * slope) * rstd;
      data["dx"][r * columns + c] = args.with_residual ? dx + data["dsum"][r * columns + c] : dx;
    }
  }
}

}  // namespace lockstep::kernels
