#include "trainer/tokens/words.h"

#include <array>

#include "trainer/tokens/unicode.h"

namespace lockstep::trainer {
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
