// Byte-pair encoding of a word (Sennrich, Haddow, Birch 2016, arXiv:1508.07909; on bytes: Radford et al. 2019, section
// 2.2): of all neighbours that a merge joins, those of the first merge in the list are joined, leftmost first, until
// none is left.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::trainer {

// Finds tokens of a vocabulary by their bytes.
struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, std::int32_t, BytesHash, std::equal_to<>>;

class BytePairs {
 public:
  BytePairs() = default;
  // Two tokens that a merge joins, the first merge first; the joined token has an id of its own.
  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t joined;
  };
  BytePairs(const std::array<std::int32_t, 256>& id_of_byte, std::span<const Merge> merges);

  // Appends the tokens of a word.
  void encode(std::string_view word, std::vector<std::int32_t>& to) const;

 private:
  struct Join {
    std::int32_t rank;
    std::int32_t joined;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
  }
  const Join* find(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> id_of_byte_{};
  std::unordered_map<std::uint64_t, Join> joins_;
};

}  // namespace lockstep::trainer
