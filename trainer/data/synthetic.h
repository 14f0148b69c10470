// A synthetic text to learn from if no file is given: 16 letters, each drawn depending on the two before it (a Markov
// chain of order 2).
//
// A pair of letters is followed by one letter half of the time, and by a second and a third a quarter of the time each;
// which three is a function of (seed, pair). The best loss that any model can reach is therefore known, ln(2) * 1.5 =
// 1.04 nats per letter, and a model that sees only one letter (bigram.h) stays far above it: the model must learn to
// use context.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::trainer {

inline constexpr double kSyntheticEntropyNats = 1.0397207708399179;  // 1.5 ln 2, per letter

std::vector<std::uint8_t> synthetic_text(std::uint64_t seed, std::int64_t bytes);

}  // namespace lockstep::trainer
