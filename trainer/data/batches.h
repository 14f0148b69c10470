// Which sequences a step trains on. Pure functions of (seed, step, number of the sample in the global batch): whatever
// rank, microbatch or row a sample falls to, it is the same one, so that all layouts train on the same global batches.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/data/token_text.h"

namespace lockstep::trainer {

// The token at which a sample begins: uniform over all places where `length` tokens and a last target fit, drawn with
// replacement.
std::int64_t sample_begin(std::uint64_t seed, std::int64_t step, std::int64_t sample, std::int64_t text_tokens,
                          std::int64_t length);

// Validation: windows at fixed places, spread evenly from the first token to the last.
std::int64_t max_windows(std::int64_t text_tokens, std::int64_t length);  // that do not overlap
std::int64_t window_begin(std::int64_t window, std::int64_t windows, std::int64_t text_tokens, std::int64_t length);

// Fill [rows, length] each; rows are tokens.size() / length. A target is the token behind.
// Samples first_sample, first_sample + 1, ... of a step, one a row.
void draw_samples(const TokenText& text, std::uint64_t seed, std::int64_t step, std::int64_t first_sample,
                  std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets);
// Windows first_window, first_window + 1, ... of `windows`, one a row.
void take_windows(const TokenText& text, std::int64_t first_window, std::int64_t windows, std::int64_t length,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

}  // namespace lockstep::trainer
