// Contiguous shares of a sequence of work items: layers of stages, slices of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::schedules {

// Splits a sequence of work items into contiguous parts that are as even as possible: layers into stages, tokens into
// slices.

// Number of items in each part, so that the largest sum of `costs` over a part is minimal and, among those, the sum of
// the squares is. Each part has at least one item. `costs` are not negative; `parts` is 1 to the number of items. Takes
// parts x items^2 operations.
std::vector<std::int32_t> balanced_parts(std::span<const double> costs, std::int32_t parts);

// Token slices: every sequence of a microbatch is cut into slices that go through the stages one after another, as
// microbatches do. With causal attention a slice needs keys and values of the slices before it, and its backward gives
// them their gradients: on each stage forwards go from the first slice to the last, backwards from the last to the
// first (TeraPipe, Li et al. 2021, arXiv:2102.07988; Seq1F1B, Sun et al. 2024, arXiv:2406.03488).

// The part [begin, end) of a sequence, as shares of its length.
struct SliceShare {
  double begin = 0;
  double end = 1;
  double tokens() const { return end - begin; }
  // Share of causal attention's (query, key) pairs whose query is in the slice.
  double attention() const { return end * end - begin * begin; }
};

// `lengths`: tokens of each slice, or any proportional numbers; empty: the sequence is whole.
SliceShare slice_share(std::span<const std::int64_t> lengths, std::int32_t slice);

// Share of a sequence's work that falls on a slice, where causal attention takes the share `attention` of the whole
// time and everything else is proportional to the tokens.
double work_share(const SliceShare& slice, double attention);

// Tokens of `count` slices of equal length; the first ones have one token more where `count` does not divide `tokens`.
std::vector<std::int64_t> even_slices(std::int64_t tokens, std::int32_t count);

// Tokens of `count` slices of equal time: the first slices are the longest, as they attend to the fewest keys (the
// dynamic programme of TeraPipe, section 3.3, at a given number of slices; "computation-wise partition" of Seq1F1B,
// section 3.4). Lengths are multiples of `block` tokens, which divides `tokens` into at least `count` blocks.
std::vector<std::int64_t> balanced_slices(std::int64_t tokens, std::int32_t count, double attention,
                                          std::int64_t block = 1);

// Largest block size, up to `most` tokens, that divides `tokens` into at least 16 blocks per slice: fine enough to
// balance, coarse enough for kernels. 1 if there are too few tokens for that.
std::int64_t slice_block(std::int64_t tokens, std::int32_t count, std::int64_t most = 64);

}  // namespace lockstep::schedules
