#include "schedules/slices.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace lockstep::schedules {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A dynamic programme over (items, parts): `join(before, part)` is the value of a partition whose last part has the sum
// `part` and whose other parts have the value `before`. The smallest value wins; of equal ones, the shortest last part.
class PartitionTable {
 public:
  PartitionTable(std::span<const double> costs, std::int32_t parts)
      : items_(costs.size()), parts_(parts), sums_(items_ + 1) {
    for (std::size_t i = 0; i < items_; ++i) sums_[i + 1] = sums_[i] + costs[i];
  }

  template <class Join>
  double run(const Join& join) {
    values_.assign(static_cast<std::size_t>(parts_) + 1, std::vector<double>(items_ + 1, kNever));
    begins_.assign(values_.size(), std::vector<std::size_t>(items_ + 1, 0));
    values_[0][0] = 0;
    for (std::size_t k = 1; k < values_.size(); ++k) {
      for (std::size_t end = k; end <= items_; ++end) {
        for (std::size_t begin = end; begin-- > k - 1;) {
          if (values_[k - 1][begin] == kNever) continue;
          const double value = join(values_[k - 1][begin], sums_[end] - sums_[begin]);
          if (value >= values_[k][end]) continue;
          values_[k][end] = value;
          begins_[k][end] = begin;
        }
      }
    }
    return values_.back()[items_];
  }

  std::vector<std::int32_t> counts() const {
    std::vector<std::int32_t> found(static_cast<std::size_t>(parts_));
    std::size_t end = items_;
    for (std::size_t k = found.size(); k > 0; --k) {
      found[k - 1] = static_cast<std::int32_t>(end - begins_[k][end]);
      end = begins_[k][end];
    }
    return found;
  }

 private:
  std::size_t items_;
  std::int32_t parts_;
  std::vector<double> sums_;                      // sum of the items before each item
  std::vector<std::vector<double>> values_;       // by number of parts and items
  std::vector<std::vector<std::size_t>> begins_;  // first item of the last part
};

}  // namespace

std::vector<std::int32_t> balanced_parts(std::span<const double> costs, std::int32_t parts) {
  LOCKSTEP_CHECK(parts >= 1 && static_cast<std::size_t>(parts) <= costs.size(), "at least an item for each part");
  PartitionTable rows(costs, parts);
  const double largest = rows.run([](double before, double part) { return std::max(before, part); });
  const double allowed = largest * (1 + 1e-12);  // tolerance for sums in another order
  rows.run([&](double before, double part) { return part > allowed ? kNever : before + part * part; });
  return rows.counts();
}

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
