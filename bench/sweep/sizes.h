// Sizes that a sweep visits, and the elements per block at each: nccl-tests' rules.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::sweep {

struct SizeRange {
  std::int64_t min_bytes = std::int64_t{32} << 20;
  std::int64_t max_bytes = std::int64_t{32} << 20;
  std::int64_t step_bytes = std::int64_t{1} << 20;
  int step_factor = 1;  // if above 1, step_bytes is ignored
};

std::vector<std::int64_t> sizes_of(const SizeRange& range);

// Elements per block for a message of `size_bytes`: if a rank's input or output has a block for each rank, the size is
// divided among them and rounded down to a multiple of 16 bytes (so it is 0 below 16 bytes per rank).
std::int64_t block_count(collectives::Kind kind, std::int64_t size_bytes, core::DType dtype, int num_ranks);

}  // namespace lockstep::sweep
