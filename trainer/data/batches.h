// Selects the sequences of a step. Pure functions of (seed, step, number of the sample in the global batch): a sample
// is the same on whatever rank, in whatever microbatch or row it is, so that all layouts train on the same global
// batches.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/data/token_text.h"

namespace lockstep::trainer {

// The first token of a sample: uniform over all positions where `length` tokens and a last target fit, with
// replacement.
std::int64_t sample_begin(std::uint64_t seed, std::int64_t step, std::int64_t sample, std::int64_t text_tokens,
                          std::int64_t length);

// Validation uses windows at fixed positions, spread evenly from the first token to the last.
std::int64_t max_windows(std::int64_t text_tokens, std::int64_t length);  // that do not overlap
std::int64_t window_begin(std::int64_t window, std::int64_t windows, std::int64_t text_tokens, std::int64_t length);

// These fill [rows, length] each; rows are tokens.size() / length. A target is the following token. draw_samples:
// samples first_sample, first_sample + 1, ... of a step, one per row.
void draw_samples(const TokenText& text, std::uint64_t seed, std::int64_t step, std::int64_t first_sample,
                  std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets);
// Windows first_window, first_window + 1, ... of `windows`, one per row.
void take_windows(const TokenText& text, std::int64_t first_window, std::int64_t windows, std::int64_t length,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

}  // namespace lockstep::trainer
