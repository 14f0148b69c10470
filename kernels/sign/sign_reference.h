// Reference: plain loops, for tests.
#pragma once

#include <algorithm>

#include "kernels/base/counted.h"
#include "kernels/base/reference_data.h"
#include "kernels/sign/sign.h"

namespace lockstep::kernels {

inline double value_of(double x) {
  return x;
}
inline double value_of(const Counted& x) {
  return x.value();
}

template <class S>
void reference(const EncodeSigns& args, ReferenceData<S>& data) {
  using std::abs;
  const auto x = data["x"];
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  for (std::size_t byte = 0; byte < codes.size(); ++byte) {
    int bits = 0;
    for (std::size_t i = 8 * byte; i < std::min(x.size(), 8 * byte + 8); ++i) {
      if (std::signbit(value_of(x[i]))) bits |= 1 << i % 8;
    }
    codes[byte] = S(static_cast<double>(bits));
  }
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::size_t begin = block * static_cast<std::size_t>(args.block);
    const std::size_t end = std::min(x.size(), begin + static_cast<std::size_t>(args.block));
    S sum = abs(x[begin]);
    for (std::size_t i = begin + 1; i < end; ++i) sum += abs(x[i]);
    scales[block] = sum / S(static_cast<double>(end - begin));
  }
}

template <class S>
void reference(const DecodeSigns& args, ReferenceData<S>& data) {
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) {
    const S scale = scales[i / static_cast<std::size_t>(args.block)];
    const bool negative = (static_cast<int>(value_of(codes[i / 8])) >> i % 8 & 1) != 0;
    y[i] = negative ? -scale : scale;
  }
}

}  // namespace lockstep::kernels
