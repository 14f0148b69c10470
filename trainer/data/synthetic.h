// A text to learn from when no file is given: 16 letters, each drawn by the two before it (a Markov chain of order 2).
//
// A pair of letters is followed by one letter half of the time, by a second and a third a quarter of the time each;
// which three is a function of (seed, pair). So the best that any model can reach is known, ln(2) * 1.5 = 1.04 nats a
// letter, and a model that sees one letter only (bigram.h) stays far above it: what is learned is to look back.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::trainer {

inline constexpr double kSyntheticEntropyNats = 1.0397207708399179;  // 1.5 ln 2, a letter

std::vector<std::uint8_t> synthetic_text(std::uint64_t seed, std::int64_t bytes);

}  // namespace lockstep::trainer
