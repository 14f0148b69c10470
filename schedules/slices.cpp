#include "schedules/slices.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "schedules/partition.h"

namespace lockstep::schedules {

SliceShare slice_share(std::span<const std::int64_t> lengths, std::int32_t slice) {
  if (lengths.empty()) return {};
  const auto at = lengths.begin() + slice;
  const auto all = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  const std::int64_t begin = std::accumulate(lengths.begin(), at, std::int64_t{0});
  return {static_cast<double>(begin) / all, static_cast<double>(begin + *at) / all};
}

double work_share(const SliceShare& slice, double attention) {
  return (1 - attention) * slice.tokens() + attention * slice.attention();
}

std::vector<std::int64_t> even_slices(std::int64_t tokens, std::int32_t count) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count), tokens / count);
  for (std::int64_t i = 0; i < tokens % count; ++i) ++lengths[static_cast<std::size_t>(i)];
  return lengths;
}

std::vector<std::int64_t> balanced_slices(std::int64_t tokens, std::int32_t count, double attention,
                                          std::int64_t block) {
  LOCKSTEP_CHECK(tokens % block == 0 && tokens / block >= count, "a block of tokens for each slice");
  std::vector<double> costs;
  const std::int64_t num_blocks = tokens / block;
  const auto blocks = static_cast<double>(num_blocks);
  for (double i = 0; i < blocks; ++i) costs.push_back(work_share({i / blocks, (i + 1) / blocks}, attention));
  std::vector<std::int64_t> lengths;
  for (const std::int32_t part : balanced_parts(costs, count)) lengths.push_back(block * part);
  return lengths;
}

std::int64_t slice_block(std::int64_t tokens, std::int32_t count, std::int64_t most) {
  constexpr std::int64_t kBlocksASlice = 16;
  for (std::int64_t block = std::min(most, tokens / (kBlocksASlice * count)); block > 1; --block) {
    if (tokens % block == 0) return block;
  }
  return 1;
}

}  // namespace lockstep::schedules
