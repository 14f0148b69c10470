// Parameters one after the other in a flat buffer that ranks can share evenly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::workload {

// Alignment in elements at which each parameter begins: 128 bytes in f32, the alignment that kernels prefer. Shards end
// at one, too.
inline constexpr std::int64_t kFlatGrain = 32;

// Elements [begin, end) of a flat buffer.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  bool empty() const { return end <= begin; }
};
inline FlatRange common_of(FlatRange a, FlatRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

struct FlatBucket {
  std::vector<FlatRange> places;  // [member]
  std::int64_t elems = 0;         // padding included: a multiple of shards * kFlatGrain

  // Equal shards, in the order of ranks.
  FlatRange shard(std::int32_t shards, std::int32_t index) const {
    return {elems / shards * index, elems / shards * (index + 1)};
  }
  // Ranges of members for which `chosen(member)` is true, within a range; neighbours, and the zeros between them, are
  // merged.
  template <class Chosen>
  std::vector<FlatRange> ranges_in(FlatRange wanted, const Chosen& chosen) const {
    std::vector<FlatRange> ranges;
    bool goes_on = false;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const FlatRange range = common_of(places[i], wanted);
      if (range.empty()) continue;
      const bool is_chosen = chosen(i);
      if (is_chosen && goes_on) ranges.back().end = range.end;
      if (is_chosen && !goes_on) ranges.push_back(range);
      goes_on = is_chosen;
    }
    return ranges;
  }
};

// `member_elems`: elements of the bucket's parameters, in memory order.
FlatBucket lay_out(std::span<const std::int64_t> member_elems, std::int32_t shards);

}  // namespace lockstep::workload
