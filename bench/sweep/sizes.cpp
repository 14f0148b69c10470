#include "bench/sweep/sizes.h"

#include "core/error.h"

namespace lockstep::sweep {

std::vector<std::int64_t> sizes_of(const SizeRange& range) {
  const bool multiplies = range.step_factor > 1;
  LOCKSTEP_CHECK(range.min_bytes == range.max_bytes || (multiplies ? range.min_bytes > 0 : range.step_bytes > 0),
                 "sizes would never end");
  std::vector<std::int64_t> sizes{range.min_bytes};
  while (true) {
    const std::int64_t next = multiplies ? sizes.back() * range.step_factor : sizes.back() + range.step_bytes;
    if (next > range.max_bytes || next == sizes.back()) return sizes;
    sizes.push_back(next);
  }
}

std::int64_t block_count(collectives::Kind kind, std::int64_t size_bytes, core::DType dtype, int num_ranks) {
  const auto element = static_cast<std::int64_t>(core::size_of(dtype));
  const bool has_block_a_rank = collectives::message_bytes(kind, 2, 1, dtype) > element;
  if (!has_block_a_rank) return size_bytes / element;
  const std::int64_t elements_in_16_bytes = 16 / element;
  return size_bytes / element / num_ranks / elements_in_16_bytes * elements_in_16_bytes;
}

}  // namespace lockstep::sweep
