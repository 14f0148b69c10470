// Files of tokens, as llm.c has them (https://github.com/karpathy/llm.c, dev/data/data_common.py): 256 numbers of 32
// bits, of which the first three are a magic number, a version and how many tokens follow, and then the tokens,
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

// The tokens of a file's bytes, or nothing if it does not begin as a file of tokens does. Throws a usage Error that
// begins with `file` if it does, and its version or its length is not what it says.
std::optional<TokenText::Part> tokens_in(const std::string& file, std::span<const std::uint8_t> bytes);

// Writes one front to back, of as many tokens as come. The file takes its name with commit().
class TokenFileWriter {
 public:
  // 16 bits a token if that holds the ids of so many `words`.
  TokenFileWriter(const std::string& path, std::int64_t words);
  // Throws a usage Error if there come more than the header can say, 2^31 - 1.
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
