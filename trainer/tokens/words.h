// Words of a text: how tokenizers split it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::trainer {

// UTF-8 decoding, and the character classes by which tokenizers split text.

bool is_letter(std::uint32_t code);  // Unicode's categories L*
bool is_number(std::uint32_t code);  // N*
bool is_space(std::uint32_t code);   // White_Space

enum class CharClass : std::uint8_t { letter, number, space, other };

struct Character {
  std::uint32_t code;
  std::size_t bytes;
  CharClass of;
};
// Returns the character at `at`, which is before the end. A byte that does not begin a valid UTF-8 character is one by
// itself, of class `other` with a code outside of Unicode.
Character character_at(std::string_view text, std::size_t at);

void append_utf8(std::string& text, std::uint32_t code);

// Cuts text into the words within which byte pairs are merged: what tokenizers call pre-tokenisation. Each pattern is a
// regular expression of its model, whose first alternative that matches is taken:
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//           (https://github.com/openai/gpt-2, src/encoder.py)
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
//           \s+(?!\S)|\s+     (https://github.com/meta-llama/llama3, llama/tokenizer.py)

enum class WordPattern : std::uint8_t { gpt2, llama3 };

// The regular expression in the form of tokenizer.json.
std::string_view expression_of(WordPattern pattern);

// Length in bytes of the word that begins at `at`, which is before the end. Every byte is in exactly one word.
std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at);

}  // namespace lockstep::trainer
