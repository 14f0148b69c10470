// Philox4x32-10 for host code of any compiler; see dropout.h for the source.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9u;  // the golden ratio
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85u;  // sqrt(3) - 1

// Computes four words from a counter and a key of 32-bit words.
constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxKeyStep0;
    key[1] += kPhiloxKeyStep1;
  }
  return counter;
}

constexpr std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
constexpr std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

}  // namespace lockstep::kernels
