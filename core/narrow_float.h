// Narrow floating-point formats as bits, and conversions to and from float (round to nearest, ties to even).
//   Float16   IEEE 754 binary16                        1 + 5 + 10 bits
//   BFloat16  the upper half of binary32               1 + 8 + 7
//   Float8E4M3, Float8E5M2  OCP OFP8 1.0 (2023)        1 + 4 + 3 without infinity, 1 + 5 + 2
// On overflow, binary16, bfloat16 and E5M2 become infinity; E4M3, which has no infinity, becomes NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::core {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};
struct Float8E5M2 {
  std::uint8_t bits;
};

float to_float(Float16 x);
float to_float(Float8E4M3 x);
float to_float(Float8E5M2 x);

Float16 to_float16(float x);
Float8E4M3 to_float8_e4m3(float x);
Float8E5M2 to_float8_e5m2(float x);

// bfloat16 is converted so often and so simply that the loops of kernels must be able to inline it.
inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

inline BFloat16 to_bfloat16(float x) {
  const auto wide = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (wide >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((wide & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}

}  // namespace lockstep::core
