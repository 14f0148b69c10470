#include "trainer/tokens/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

// Letters and numbers of Unicode 15 to 16, which PCRE2 before 10.45 does not know (Debian 12's has Unicode 14).
constexpr std::string_view kNewLetters =
    R"(\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c})"
    R"(\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed})"
    R"(\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr std::string_view kNewNumbers =
    R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, Free>;

// The expression with each class as PCRE2's properties and ranges. Its own \s has U+180E, which is no White_Space.
std::string spelled_out(std::string_view expression) {
  const std::string spaces = R"(\p{Z}\t-\r\x{85})";
  const std::array<std::pair<std::string_view, std::string>, 4> classes{
      {{R"(\p{L})", R"(\p{L})" + std::string(kNewLetters)},
       {R"(\p{N})", R"(\p{N})" + std::string(kNewNumbers)},
       {R"(\s)", spaces},
       {R"(\S)", "^" + spaces}}};
  std::string text;
  bool in_brackets = false;
  while (!expression.empty()) {
    const auto named = [&](const auto& one) { return expression.starts_with(one.first); };
    const auto* const found = std::find_if(classes.begin(), classes.end(), named);
    if (found == classes.end()) {
      in_brackets = expression.front() == '[' || (in_brackets && expression.front() != ']');
      text += expression.front();
    } else {
      text += in_brackets ? found->second : "[" + found->second + "]";
    }
    expression.remove_prefix(found == classes.end() ? 1 : found->first.size());
  }
  return text;
}

Code compiled(WordPattern pattern) {
  const std::string text = spelled_out(expression_of(pattern));
  int error = 0;
  std::size_t at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                          PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_ANCHORED, &error, &at, nullptr));
  LOCKSTEP_CHECK(code != nullptr, "an expression that PCRE2 takes");
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where PCRE2 has no JIT, pcre2_match() interprets
  return code;
}

}  // namespace

std::string_view expression_of(WordPattern pattern) {
  if (pattern == WordPattern::gpt2) {
    return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  }
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
         R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
}

void for_each_word(WordPattern pattern, std::string_view text, const std::function<void(std::string_view)>& use) {
  static const std::array<Code, 2> kCodes{compiled(WordPattern::gpt2), compiled(WordPattern::llama3)};
  const pcre2_code* const code = kCodes.at(static_cast<std::size_t>(pattern)).get();
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
  for (std::size_t at = 0; at < text.size();) {
    const auto* const bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
    const bool found = pcre2_match(code, bytes, text.size(), at, 0, match.get(), nullptr) > 0;
    const std::size_t end = found ? pcre2_get_ovector_pointer(match.get())[1] : at + 1;
    use(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace lockstep::trainer
