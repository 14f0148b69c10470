// Cuts text into the words within which byte pairs are merged: what tokenizers call pre-tokenisation. Each pattern is a
// regular expression of its model, whose first alternative that matches is taken:
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//           (https://github.com/openai/gpt-2, src/encoder.py)
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
//           \s+(?!\S)|\s+     (https://github.com/meta-llama/llama3, llama/tokenizer.py)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::trainer {

enum class WordPattern : std::uint8_t { gpt2, llama3 };

// The regular expression in the form of tokenizer.json.
std::string_view expression_of(WordPattern pattern);

// Length in bytes of the word that begins at `at`, which is before the end. Every byte is in exactly one word.
std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at);

}  // namespace lockstep::trainer
