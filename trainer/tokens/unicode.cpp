#include "trainer/tokens/unicode.h"

#include <array>

namespace lockstep::trainer {
namespace {

constexpr std::uint32_t kNoCode = 0x110000;

CharClass class_of(std::uint32_t code) {
  if (is_letter(code)) return CharClass::letter;
  if (is_number(code)) return CharClass::number;
  return is_space(code) ? CharClass::space : CharClass::other;
}

std::array<CharClass, 128> ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (std::uint32_t code = 0; code < classes.size(); ++code) classes[code] = class_of(code);
  return classes;
}

std::uint32_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Decodes a character of `bytes` bytes; `first` is the part of the code in its first byte.
Character several_bytes(std::string_view text, std::size_t at, std::size_t bytes, std::uint32_t first) {
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const Character broken{kNoCode, 1, CharClass::other};
  if (text.size() - at < bytes) return broken;
  std::uint32_t code = first;
  for (std::size_t i = 1; i < bytes; ++i) {
    const std::uint32_t next = byte_at(text, at + i);
    if ((next & 0xC0U) != 0x80) return broken;
    code = code << 6U | (next & 0x3FU);
  }
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast.at(bytes) || code >= kNoCode || surrogate) return broken;
  return {code, bytes, class_of(code)};
}

}  // namespace

// White_Space of Unicode's PropList, the same in all versions since 6.3.
bool is_space(std::uint32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

Character character_at(std::string_view text, std::size_t at) {
  static const std::array<CharClass, 128> kAscii = ascii_classes();
  const std::uint32_t first = byte_at(text, at);
  if (first < 0x80) return {first, 1, kAscii[first]};
  if ((first & 0xE0U) == 0xC0) return several_bytes(text, at, 2, first & 0x1FU);
  if ((first & 0xF0U) == 0xE0) return several_bytes(text, at, 3, first & 0xFU);
  if ((first & 0xF8U) == 0xF0) return several_bytes(text, at, 4, first & 0x7U);
  return {kNoCode, 1, CharClass::other};
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_six = [&](unsigned shift) { put(0x80U | (code >> shift & 0x3FU)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0U | code >> 6U);
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put_six(6);
  } else {
    put(0xF0U | code >> 18U);
    put_six(12);
    put_six(6);
  }
  put_six(0);
}

}  // namespace lockstep::trainer
