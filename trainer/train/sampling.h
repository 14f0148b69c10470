// Draws the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

// Returns an index drawn from softmax(logits / temperature) with a number in [0, 1); temperature 0: the first maximum.
std::int64_t drawn_word(std::span<const float> logits, double temperature, double uniform);

}  // namespace lockstep::trainer
