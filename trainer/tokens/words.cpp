#include "trainer/tokens/tokenizer.h"

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

namespace {

// Each alternative is a function from a position to the number of bytes that match there; 0: none.
class Matcher {
 public:
  Matcher(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  // 's 't 're 've 'm 'll 'd. Case is folded by Unicode's rules: the long s is an s.
  std::size_t contraction(bool any_case) const {
    constexpr std::array<std::string_view, 7> kEnds{"s", "t", "re", "ve", "m", "ll", "d"};
    if (text_[at_] != '\'') return 0;
    for (const std::string_view end : kEnds) {
      std::size_t next = at_ + 1;
      bool same = true;
      for (const char wanted : end) {
        const Character found = here(next);
        same = same && folded(found.code, any_case) == static_cast<unsigned char>(wanted);
        next += found.bytes;
      }
      if (same) return next - at_;
    }
    return 0;
  }

  // Matches an optional character that `leads` takes, followed by one or more of a class.
  template <class Leads>
  std::size_t led(CharClass of, const Leads& leads) const {
    std::size_t first = at_;
    if (const Character lead = here(at_); leads(lead) && here(at_ + lead.bytes).of == of) first += lead.bytes;
    const std::size_t end = run(first, of);
    return end == first ? 0 : end - at_;
  }

  std::size_t numbers(int most) const {
    std::size_t end = at_;
    for (int count = 0; count < most && here(end).of == CharClass::number; ++count) end += here(end).bytes;
    return end - at_;
  }

  std::size_t newlines_from(std::size_t first) const {
    std::size_t end = first;
    while (is_newline(here(end))) ++end;
    return end - at_;
  }

  // \s*[\r\n]+: whitespace up to its last newline.
  std::size_t to_last_newline() const {
    std::size_t last = 0;
    for (std::size_t next = at_; here(next).of == CharClass::space; next += here(next).bytes) {
      if (is_newline(here(next))) last = next + 1 - at_;
    }
    return last;
  }

  // \s+(?!\S)|\s+: whitespace except for the last character, which belongs to the next word; all of it at the end of
  // the text.
  std::size_t spaces() const {
    std::size_t end = at_;
    std::size_t before_last = at_;
    while (here(end).of == CharClass::space) {
      before_last = end;
      end += here(end).bytes;
    }
    return (end < text_.size() && before_last > at_ ? before_last : end) - at_;
  }

  static bool is_newline(const Character& one) { return one.code == '\r' || one.code == '\n'; }

 private:
  // Past the end: a character of a class that no word contains.
  Character here(std::size_t at) const {
    constexpr Character kEnd{0xFFFFFFFF, 0, static_cast<CharClass>(0xFF)};
    return at < text_.size() ? character_at(text_, at) : kEnd;
  }
  std::size_t run(std::size_t first, CharClass of) const {
    std::size_t end = first;
    while (here(end).of == of) end += here(end).bytes;
    return end;
  }
  static std::uint32_t folded(std::uint32_t code, bool any_case) {
    constexpr std::uint32_t kLongS = 0x17F;
    if (!any_case) return code;
    if (code == kLongS) return 's';
    return code >= 'A' && code <= 'Z' ? code - 'A' + 'a' : code;
  }

  std::string_view text_;
  std::size_t at_;
};

bool is_blank(const Character& one) {
  return one.code == ' ';
}
bool leads_a_llama_word(const Character& one) {
  return !Matcher::is_newline(one) && (one.of == CharClass::space || one.of == CharClass::other);
}

std::size_t gpt2_word(const Matcher& match) {
  if (const std::size_t length = match.contraction(false)) return length;
  for (const CharClass of : {CharClass::letter, CharClass::number, CharClass::other}) {
    if (const std::size_t length = match.led(of, is_blank)) return length;
  }
  return match.spaces();
}

std::size_t llama3_word(const Matcher& match, std::size_t at) {
  if (const std::size_t length = match.contraction(true)) return length;
  if (const std::size_t length = match.led(CharClass::letter, leads_a_llama_word)) return length;
  if (const std::size_t length = match.numbers(3)) return length;
  if (const std::size_t length = match.led(CharClass::other, is_blank)) return match.newlines_from(at + length);
  if (const std::size_t length = match.to_last_newline()) return length;
  return match.spaces();
}

}  // namespace

std::string_view expression_of(WordPattern pattern) {
  if (pattern == WordPattern::gpt2) {
    return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  }
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
         R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at) {
  const Matcher match(text, at);
  return pattern == WordPattern::gpt2 ? gpt2_word(match) : llama3_word(match, at);
}

}  // namespace lockstep::trainer
