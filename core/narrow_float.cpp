#include "core/narrow_float.h"

#include <bit>
#include <cmath>

namespace lockstep::core {
namespace {

// A small binary format: from the top, bits are sign, exponent and mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // otherwise the all-ones exponent holds numbers, and only the all-ones mantissa is NaN (E4M3)
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t exponent_ones() const { return (1u << exponent_bits) - 1; }
  constexpr std::uint32_t mantissa_ones() const { return (1u << mantissa_bits) - 1; }
  constexpr int sign_shift() const { return exponent_bits + mantissa_bits; }
  constexpr std::uint32_t nan_bits() const {
    return (exponent_ones() << mantissa_bits) | (has_infinity ? 1u << (mantissa_bits - 1) : mantissa_ones());
  }
  // Smallest code above all finite numbers.
  constexpr std::uint32_t overflow_bits() const {
    return has_infinity ? exponent_ones() << mantissa_bits : (exponent_ones() << mantissa_bits) | mantissa_ones();
  }
};

constexpr Format kFloat16{5, 10, true};
constexpr Format kE4M3{4, 3, false};
constexpr Format kE5M2{5, 2, true};

float decode(const Format& f, std::uint32_t bits) {
  const bool negative = (bits >> f.sign_shift()) & 1u;
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & f.exponent_ones();
  const std::uint32_t mantissa = bits & f.mantissa_ones();
  float magnitude = 0;
  if (f.has_infinity && exponent == f.exponent_ones()) {
    magnitude = mantissa != 0 ? std::nanf("") : INFINITY;
  } else if (!f.has_infinity && exponent == f.exponent_ones() && mantissa == f.mantissa_ones()) {
    magnitude = std::nanf("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - f.bias() - f.mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | (1u << f.mantissa_bits)),
                           static_cast<int>(exponent) - f.bias() - f.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

// Returns value / 2^shift, rounded to nearest, ties to even; shift >= 0.
std::uint32_t round_shift(std::uint32_t value, int shift) {
  if (shift == 0) return value;
  if (shift > 31) return 0;
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rest = value & ((half << 1) - 1);
  const std::uint32_t whole = shift == 32 ? 0 : value >> shift;
  const bool up = rest > half || (rest == half && (whole & 1u) != 0);
  return whole + (up ? 1u : 0u);
}

std::uint32_t encode(const Format& f, float x) {
  const std::uint32_t wide = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (wide >> 31) << f.sign_shift();
  if (std::isnan(x)) return sign | f.nan_bits();
  if (std::isinf(x)) return sign | f.overflow_bits();
  const int exponent = static_cast<int>((wide >> 23) & 0xffu) - 127;
  const std::uint32_t mantissa = (wide & 0x7fffffu) | (exponent == -127 ? 0u : 0x800000u);
  const int extra = 1 - f.bias() - exponent;  // bits lost below the smallest normal number
  const int shift = 23 - f.mantissa_bits + (extra > 0 ? extra : 0);
  std::uint32_t code = round_shift(mantissa, shift);
  // A carry out of the mantissa increments the exponent by itself, because the two fields are adjacent.
  if (extra <= 0) code += static_cast<std::uint32_t>(exponent + f.bias() - 1) << f.mantissa_bits;
  return sign | (code >= f.overflow_bits() ? f.overflow_bits() : code);
}

}  // namespace

float to_float(Float16 x) {
  return decode(kFloat16, x.bits);
}
float to_float(Float8E4M3 x) {
  return decode(kE4M3, x.bits);
}
float to_float(Float8E5M2 x) {
  return decode(kE5M2, x.bits);
}

Float16 to_float16(float x) {
  return {static_cast<std::uint16_t>(encode(kFloat16, x))};
}
Float8E4M3 to_float8_e4m3(float x) {
  return {static_cast<std::uint8_t>(encode(kE4M3, x))};
}
Float8E5M2 to_float8_e5m2(float x) {
  return {static_cast<std::uint8_t>(encode(kE5M2, x))};
}

}  // namespace lockstep::core
