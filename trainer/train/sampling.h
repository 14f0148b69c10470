// Draws the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

// An index drawn from softmax(logits / temperature) by a number in [0, 1); temperature 0: the first of the largest.
std::int64_t drawn_word(std::span<const float> logits, double temperature, double uniform);

}  // namespace lockstep::trainer
