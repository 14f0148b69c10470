// A view of a long sequence of tokens in memory or in memory-mapped files, in parts: as bytes, or as 16 or 32 bits
// each. The maker owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::trainer {

class TokenText {
 public:
  TokenText() = default;
  explicit TokenText(std::span<const std::uint8_t> bytes) { append({bytes.data(), bytes.size(), 1}); }

  // `width`: bytes per token (1, 2 or 4), little-endian.
  struct Part {
    const void* data;
    std::size_t count;
    int width;
  };
  void append(const Part& part);

  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  TokenText part(std::size_t first, std::size_t count) const;
  // Copies tokens first, first + 1, ... until `to` is full.
  void copy(std::size_t first, std::span<std::int32_t> to) const;
  // The whole text if its tokens are bytes in one part; otherwise empty.
  std::span<const std::uint8_t> bytes() const;

 private:
  std::vector<Part> parts_;
  std::vector<std::size_t> ends_;  // end of each part, in tokens
};

}  // namespace lockstep::trainer
