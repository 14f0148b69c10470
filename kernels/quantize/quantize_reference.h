// The obvious loops; for tests. Each result is rounded to f32: the quotient and the product of two f32, rounded from
// f64 to f32, are what f32 arithmetic gives, so that codes are comparable exactly.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/base/counted.h"
#include "kernels/base/reference_data.h"
#include "kernels/quantize/quantize.h"

namespace lockstep::kernels {

inline double in_f32(double x) {
  return static_cast<double>(static_cast<float>(x));
}
inline Counted in_f32(Counted x) {
  return {in_f32(x.value())};
}

inline double nearest(double x) {
  return std::nearbyint(x);
}
inline Counted nearest(Counted x) {
  return round(x);
}

template <class S>
void reference(const Quantize& args, ReferenceData<S>& data) {
  using std::abs;
  const auto x = data["x"];
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  for (std::int64_t block = 0; block < args.blocks(); ++block) {
    const auto begin = static_cast<std::size_t>(block * args.block);
    const std::size_t end = std::min(x.size(), begin + static_cast<std::size_t>(args.block));
    S largest = abs(x[begin]);
    bool finite = true;
    for (std::size_t i = begin; i < end; ++i) {
      if (largest < abs(x[i])) largest = abs(x[i]);
      if (!(abs(x[i]) < S(INFINITY))) finite = false;
    }
    const bool is_zero = largest < S(static_cast<double>(kSmallestLargest));
    S inverse = S(0);
    S& scale = scales[static_cast<std::size_t>(block)];
    scale = finite ? S(0) : S(NAN);
    if (finite && !is_zero) {
      scale = in_f32(largest / S(127));
      inverse = in_f32(S(127) / largest);
    }
    for (std::size_t i = begin; i < end; ++i) codes[i] = finite ? nearest(in_f32(x[i] * inverse)) : S(0);
  }
}

template <class S>
void reference(const Dequantize& args, ReferenceData<S>& data) {
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = codes[i] * scales[i / static_cast<std::size_t>(args.block)];
}

}  // namespace lockstep::kernels
