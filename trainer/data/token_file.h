// Token files in the format of llm.c (https://github.com/karpathy/llm.c, dev/data/data_common.py): 256 numbers of 32
// bits, the first three of which are a magic number, a version and the number of tokens, followed by the tokens,
// little-endian:
//   20240520, 1, n   16 bits each
//   20240801, 7, n   32 bits each
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/atomic_file.h"
#include "trainer/data/token_text.h"

namespace lockstep::trainer {

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
