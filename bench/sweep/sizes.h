// Which sizes a sweep visits, and how many elements a block has at each: nccl-tests' rules.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::sweep {

struct SizeRange {
  std::int64_t min_bytes = std::int64_t{32} << 20;
  std::int64_t max_bytes = std::int64_t{32} << 20;
  std::int64_t step_bytes = std::int64_t{1} << 20;
  int step_factor = 1;  // above 1 it wins over step_bytes
};

std::vector<std::int64_t> sizes_of(const SizeRange& range);

// Elements a block for a message of `size_bytes`: where a rank's input or output has a block for each rank, the size
// is divided among them and rounded down to whole 16 bytes (so that it is 0 below 16 bytes a rank).
std::int64_t block_count(collectives::Kind kind, std::int64_t size_bytes, core::DType dtype, int num_ranks);

}  // namespace lockstep::sweep
