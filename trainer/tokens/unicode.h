// Characters of UTF-8, and the classes that tokenizers cut text by.
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
// The character at `at`, which is before the end. A byte that begins no character of UTF-8 is one by itself, of class
// `other`, whose code is none of Unicode's.
Character character_at(std::string_view text, std::size_t at);

void append_utf8(std::string& text, std::uint32_t code);

}  // namespace lockstep::trainer
