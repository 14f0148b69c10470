// Reference: plain loops, for tests. Each result is rounded to f32: the quotient and the product of two f32, rounded
// from f64 to f32, equal the results of f32 arithmetic, so codes can be compared exactly.
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

inline int code_of(double x) {
  return static_cast<int>(x);
}
inline int code_of(const Counted& x) {
  return static_cast<int>(x.value());
}

// Writes codes[i] if two share a byte; the other half of the byte is kept.
template <class S, class Codes>
void put_code(CodesOf<8> /*of*/, Codes& codes, std::size_t i, S code) {
  codes[i] = code;
}
template <class S, class Codes>
void put_code(CodesOf<4> /*of*/, Codes& codes, std::size_t i, S code) {
  const int before = i % 2 == 0 ? 0 : code_of(codes[i / 2]);
  codes[i / 2] = S(static_cast<double>(before | (code_of(code) & 15) << (i % 2 * 4)));
}
template <class S, class Codes>
S get_code(CodesOf<8> /*of*/, const Codes& codes, std::size_t i) {
  return codes[i];
}
template <class S, class Codes>
S get_code(CodesOf<4> /*of*/, const Codes& codes, std::size_t i) {
  const int bits = code_of(codes[i / 2]) >> (i % 2 * 4) & 15;
  return S(static_cast<double>((bits ^ 8) - 8));
}

template <class S, int kBits>
void reference(const QuantizeTo<kBits>& args, ReferenceData<S>& data) {
  using Codes = CodesOf<kBits>;
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
    const bool is_zero = largest < S(static_cast<double>(Codes::kSmallestLargest));
    S inverse = S(0);
    S& scale = scales[static_cast<std::size_t>(block)];
    scale = finite ? S(0) : S(NAN);
    if (finite && !is_zero) {
      scale = in_f32(largest / S(static_cast<double>(Codes::kLargest)));
      inverse = in_f32(S(static_cast<double>(Codes::kLargest)) / largest);
    }
    for (std::size_t i = begin; i < end; ++i) {
      put_code(Codes(), codes, i, finite ? nearest(in_f32(x[i] * inverse)) : S(0));
    }
  }
}

template <class S, int kBits>
void reference(const DequantizeFrom<kBits>& args, ReferenceData<S>& data) {
  const auto codes = data["codes"];
  const auto scales = data["scales"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = get_code<S>(CodesOf<kBits>(), codes, i) * scales[i / static_cast<std::size_t>(args.block)];
  }
}

}  // namespace lockstep::kernels
