#include "trainer/tokens/byte_pairs.h"

#include <queue>

namespace lockstep::trainer {
namespace {

constexpr std::int32_t kNone = -1;

// A token of the word in a linked list of the remaining ones.
struct Symbol {
  std::int32_t id;
  std::int32_t before;
  std::int32_t behind;
};

// Two neighbours that may be merged. Outdated if either has been merged with another one since.
struct Candidate {
  std::int32_t rank;
  std::int32_t left;  // index
  std::int32_t left_id;
  std::int32_t right_id;
  std::int32_t joined;
  bool operator<(const Candidate& other) const {  // the queue's top is the largest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

BytePairs::BytePairs(const std::array<std::int32_t, 256>& id_of_byte, std::span<const Merge> merges)
    : id_of_byte_(id_of_byte) {
  joins_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const Merge& merge : merges) joins_.try_emplace(key_of(merge.left, merge.right), Join{rank++, merge.joined});
}

const BytePairs::Join* BytePairs::find(std::int32_t left, std::int32_t right) const {
  const auto found = joins_.find(key_of(left, right));
  return found == joins_.end() ? nullptr : &found->second;
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& to) const {
  const auto count = static_cast<std::int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  const auto at = [&](std::int32_t place) -> Symbol& { return symbols[static_cast<std::size_t>(place)]; };
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    at(i) = {id_of_byte_[byte], i - 1, i + 1 < count ? i + 1 : kNone};
  }
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](std::int32_t left) {
    if (left == kNone || at(left).behind == kNone) return;
    const std::int32_t right_id = at(at(left).behind).id;
    if (const Join* const join = find(at(left).id, right_id)) {
      candidates.push({join->rank, left, at(left).id, right_id, join->joined});
    }
  };
  for (std::int32_t i = 0; i < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = at(best.left);
    if (left.id != best.left_id || left.behind == kNone || at(left.behind).id != best.right_id) continue;
    Symbol& right = at(left.behind);
    left.id = best.joined;
    left.behind = right.behind;
    right.id = kNone;
    if (left.behind != kNone) at(left.behind).before = best.left;
    consider(left.before);
    consider(best.left);
  }
  for (std::int32_t i = count > 0 ? 0 : kNone; i != kNone; i = at(i).behind) to.push_back(at(i).id);
}

}  // namespace lockstep::trainer
