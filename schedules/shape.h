// The shape of a generated schedule, and the placement of stages on ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::schedules {

struct PipelineShape {
  std::int32_t ranks = 1;         // p
  std::int32_t microbatches = 1;  // m
  std::int32_t chunks = 1;        // v, stages per rank
  // Tokens in each slice of a microbatch (schedules/slices.h); empty: microbatches are whole.
  std::vector<std::int64_t> slice_tokens = {};

  std::int32_t slices() const {  // k
    return slice_tokens.empty() ? 1 : static_cast<std::int32_t>(slice_tokens.size());
  }
};

// Puts stage s on rank s % ranks: v chunks per rank, and each pass goes from the first rank to the last.
std::vector<std::int32_t> looped_placement(std::int32_t ranks, std::int32_t chunks);
// Every other pass through the ranks goes backwards: 0 .. p-1, p-1 .. 0, 0 .. p-1 (a V with two chunks per rank,
// Hanayo's waves with more). Consecutive passes meet on one rank.
std::vector<std::int32_t> folded_placement(std::int32_t ranks, std::int32_t chunks);
// Two pipes: one from rank 0 to p-1, one from p-1 to 0.
std::vector<std::int32_t> opposite_placement(std::int32_t ranks);

}  // namespace lockstep::schedules
