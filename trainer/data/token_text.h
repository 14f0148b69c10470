// Tokens as a sequence in memory or in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/output_file.h"

namespace lockstep::trainer {

// A view of a long sequence of tokens in memory or in memory-mapped files, in parts: as bytes, or as 16 or 32 bits
// each. The maker owns the memory.

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

// Token files in the format of llm.c (https://github.com/karpathy/llm.c, dev/data/data_common.py): 256 numbers of 32
// bits, the first three of which are a magic number, a version and the number of tokens, followed by the tokens,
// little-endian:
//   20240520, 1, n   16 bits each
//   20240801, 7, n   32 bits each

// Returns the tokens of a file's bytes, or nothing if it does not begin like a token file. Throws a usage Error that
// begins with `file` if it does but its version or length is wrong.
std::optional<TokenText::Part> tokens_in(const std::string& file, std::span<const std::uint8_t> bytes);

// Writes a token file sequentially, with any number of tokens. The file gets its name with commit().
class TokenFileWriter {
 public:
  // Uses 16 bits per token if they can hold the ids of `words` words.
  TokenFileWriter(const std::string& path, std::int64_t words);
  // Throws a usage Error beyond 2^31 - 1 tokens, the most that the header can state.
  void write(std::span<const std::int32_t> tokens);
  std::int64_t written() const { return written_; }
  void commit();

 private:
  std::string path_;
  core::AtomicFile file_;
  bool narrow_;
  std::int64_t written_ = 0;
};

}  // namespace lockstep::trainer
