// Reference: plain loops, for tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/base/reference_data.h"
#include "kernels/rotary/rotary.h"

namespace lockstep::kernels {

// Computed as in transformers: by wavelengths.
inline double reference_frequency(const Rotary& args, double frequency) {
  const RotaryScaling& scaling = args.scaling;
  if (scaling.factor == 1) return frequency;
  const double wavelength = 2 * std::acos(-1.0) / frequency;
  if (wavelength < scaling.positions / scaling.high_frequency) return frequency;
  if (wavelength > scaling.positions / scaling.low_frequency) return frequency / scaling.factor;
  const double smooth =
      (scaling.positions / wavelength - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

template <class S>
void rotate_head_reference(const Rotary& args, std::int64_t position, std::span<const S> x, std::span<S> y) {
  const std::int64_t half = args.head_columns / 2;
  const bool halves = args.pairs == RotaryPairs::halves;
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(args.head_columns);
    const double frequency = std::pow(static_cast<double>(args.theta), exponent);
    const double angle = static_cast<double>(position) * reference_frequency(args, frequency);
    const S cosine(std::cos(angle));
    const S sine(args.backward ? -std::sin(angle) : std::sin(angle));
    const auto first = static_cast<std::size_t>(halves ? i : 2 * i);
    const auto second = static_cast<std::size_t>(halves ? i + half : 2 * i + 1);
    const S a = x[first];
    const S b = x[second];
    y[first] = a * cosine - b * sine;
    y[second] = a * sine + b * cosine;
  }
}

// The elements between rows keep the value with which tests fill outputs: NaN.
template <class S>
void reference(const Rotary& args, ReferenceData<S>& data) {
  const std::span<const S> x = data["x"];
  const std::span<S> y = data["y"];
  const auto stride = static_cast<std::size_t>(args.row_stride());
  const auto columns = static_cast<std::size_t>(args.head_columns);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (i % stride >= static_cast<std::size_t>(args.row())) y[i] = S(std::numeric_limits<double>::quiet_NaN());
  }
  for (std::int64_t row = 0; row < args.rows; ++row) {
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const std::size_t at = static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(head) * columns;
      rotate_head_reference<S>(args, args.first_position + row % args.length, x.subspan(at, columns),
                               y.subspan(at, columns));
    }
  }
}

}  // namespace lockstep::kernels
