// UTF-8 decoding, and the character classes by which tokenizers split text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::trainer {

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

}  // namespace lockstep::trainer
