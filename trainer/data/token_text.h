// A long sequence of tokens that lies in memory, or in files that are mapped there, in parts: as bytes, or as 16 or 32
// bits each. A view: who made it owns the memory.
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

  // `width`: bytes a token, 1, 2 or 4, little-endian.
  struct Part {
    const void* data;
    std::size_t count;
    int width;
  };
  void append(const Part& part);

  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  TokenText part(std::size_t first, std::size_t count) const;
  // Tokens first, first + 1, ... as many as fit.
  void copy(std::size_t first, std::span<std::int32_t> to) const;
  // All of it, if tokens are bytes in one part; else of no bytes.
  std::span<const std::uint8_t> bytes() const;

 private:
  std::vector<Part> parts_;
  std::vector<std::size_t> ends_;  // of the parts, in tokens
};

}  // namespace lockstep::trainer
