#include "collectives/plan/msccl_parts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::plan {
namespace {

constexpr int kMaxDepth = 16;               // a plan has four levels
constexpr std::size_t kMaxAttributes = 64;  // an element of a plan has 11 at most

struct Entity {
  std::string_view text;
  char character;
};
constexpr std::array kEntities{Entity{"&amp;", '&'}, Entity{"&lt;", '<'}, Entity{"&gt;", '>'}, Entity{"&quot;", '"'},
                               Entity{"&apos;", '\''}};

bool is_xml_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool is_xml_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

class XmlReader {
 public:
  XmlReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  XmlElement document() {
    accept("\xEF\xBB\xBF");  // the mark that some editors put in front of UTF-8
    if (accept("<?xml ")) skip_to("?>", "the declaration's end, '?>'");
    skip_comments();
    XmlElement root = element(0);
    skip_comments();
    if (at_ < text_.size()) fail("nothing more: a document is one element");
    return root;
  }

 private:
  [[noreturn]] void fail(std::string_view allowed) const {
    const std::string_view before = text_.substr(0, at_);
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    const auto end = std::find_if(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.end(), is_xml_space);
    const std::string_view found(text_.data() + at_, static_cast<std::size_t>(end - text_.begin()) - at_);
    const std::string there = at_ == text_.size() ? "the file ends"
                              : found.empty()     ? "found a space"
                                                  : fmt::format("found '{}'", shown_in_message(found));
    throw core::usage_error(
        fmt::format("{}:{}:{}: {}; allowed: {}", source_, line(), at_ - line_begin + 1, there, allowed));
  }

  int line() const {
    return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
  }

  bool accept(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token, std::string_view allowed) {
    if (!accept(token)) fail(allowed);
  }

  // Returns the text up to `token`, and stands behind it.
  std::string_view skip_to(std::string_view token, std::string_view allowed) {
    const std::size_t begin = at_;
    const std::size_t end = text_.find(token, at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
    expect(token, allowed);
    return text_.substr(begin, end - begin);
  }

  bool skip_space() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_xml_space(text_[at_])) ++at_;
    return at_ > begin;
  }

  void skip_comments() {
    skip_space();
    while (accept("<!--")) {
      skip_to("-->", "the comment's end, '-->'");
      skip_space();
    }
  }

  std::string name(std::string_view allowed) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_xml_name(text_[at_])) ++at_;
    if (at_ == begin) fail(allowed);
    return std::string(text_.substr(begin, at_ - begin));
  }

  XmlElement element(int depth) {
    XmlElement element;
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
    counted_ = at_;
    element.line = line_;
    if (depth == kMaxDepth) fail(fmt::format("elements up to {} deep", kMaxDepth));
    expect("<", depth == 0 ? "an element" : "an element or a comment (no text)");
    element.name = name("an element's name (DOCTYPE, CDATA and <? are not read)");
    while (skip_space() && !at_end_of_tag()) {
      if (element.attributes.size() == kMaxAttributes) fail(fmt::format("up to {} attributes", kMaxAttributes));
      element.attributes.push_back(attribute(element));
    }
    if (accept("/>")) return element;
    expect(">", "an attribute after a space, '>' or '/>'");
    const std::string end = fmt::format("'</{}>', the end of the element of line {}", element.name, element.line);
    for (skip_comments(); !accept("</"); skip_comments()) {
      if (at_ == text_.size()) fail(end);
      element.children.push_back(this->element(depth + 1));
    }
    expect(element.name, end);
    skip_space();
    expect(">", "'>'");
    return element;
  }

  bool at_end_of_tag() const { return at_ < text_.size() && (text_[at_] == '>' || text_[at_] == '/'); }

  XmlAttribute attribute(const XmlElement& element) {
    const std::size_t begin = at_;
    XmlAttribute attribute;
    attribute.name = name("an attribute, '>' or '/>'");
    const auto is_same = [&](const XmlAttribute& other) { return other.name == attribute.name; };
    if (std::any_of(element.attributes.begin(), element.attributes.end(), is_same)) {
      at_ = begin;
      fail("each attribute once");
    }
    skip_space();
    expect("=", "'=' and the attribute's value");
    skip_space();
    const bool is_double = accept("\"");
    if (!is_double) expect("'", "the attribute's value in quotes");
    attribute.value = value(is_double ? '"' : '\'');
    return attribute;
  }

  std::string value(char quote) {
    std::string value;
    while (!accept({&quote, 1})) {
      if (at_ == text_.size() || text_[at_] == '<' || text_[at_] == '\n') fail("the value's closing quote");
      value += text_[at_] == '&' ? entity() : text_[at_++];
    }
    return value;
  }

  char entity() {
    for (const Entity& entity : kEntities) {
      if (accept(entity.text)) return entity.character;
    }
    fail("&amp; &lt; &gt; &quot; &apos;");
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;             // line of the place counted_
  std::size_t counted_ = 0;  // the text up to here was searched for line ends
};

}  // namespace

XmlElement parse_xml(std::string_view text, std::string_view source) {
  return XmlReader(text, source).document();
}

XmlAttributes::XmlAttributes(const XmlElement& element, std::string_view source, std::string_view name,
                             std::initializer_list<std::string_view> known)
    : element_(element), source_(source) {
  if (element.name != name) {
    throw core::usage_error(
        fmt::format("{}:{}: found <{}>; allowed: <{}>", source, element.line, shown_in_message(element.name), name));
  }
  for (const XmlAttribute& attribute : element.attributes) {
    if (std::find(known.begin(), known.end(), attribute.name) != known.end()) continue;
    throw core::usage_error(fmt::format("{}:{}: <{}> has the attribute {}; allowed: {}", source, element.line, name,
                                        shown_in_message(attribute.name), fmt::join(known, ", ")));
  }
}

const std::string* XmlAttributes::find(std::string_view name) const {
  for (const XmlAttribute& attribute : element_.attributes) {
    if (attribute.name == name) return &attribute.value;
  }
  return nullptr;
}

void XmlAttributes::fail(std::string_view name, const std::string& allowed) const {
  const std::string* const value = find(name);
  const std::string there =
      value != nullptr ? fmt::format("{}=\"{}\"", name, shown_in_message(*value)) : fmt::format("no {}", name);
  throw core::usage_error(
      fmt::format("{}:{}: <{}> has {}; allowed: {}", source_, element_.line, element_.name, there, allowed));
}

std::int64_t XmlAttributes::long_integer_or(std::int64_t if_absent, std::string_view name, std::int64_t least,
                                            std::int64_t most) const {
  const std::string* const value = find(name);
  if (value == nullptr) return if_absent;
  std::int64_t parsed = 0;
  const char* const end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, parsed);
  if (error != std::errc{} || stop != end || parsed < least || parsed > most) {
    fail(name, fmt::format("{} to {}", least, most));
  }
  return parsed;
}

int XmlAttributes::integer_or(int if_absent, std::string_view name, int least, int most) const {
  return static_cast<int>(long_integer_or(if_absent, name, least, most));
}

int XmlAttributes::integer(std::string_view name, int least, int most) const {
  if (find(name) == nullptr) fail(name, fmt::format("{} to {}", least, most));
  return integer_or(0, name, least, most);
}

std::string xml_escaped(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    const auto* const entity =
        std::find_if(kEntities.begin(), kEntities.end(), [c](const Entity& e) { return e.character == c; });
    entity == kEntities.end() ? escaped += c : escaped += entity->text;
  }
  return escaped;
}

std::string shown_in_message(std::string_view found) {
  constexpr std::size_t kMost = 40;
  std::string shown(found.substr(0, kMost));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return found.size() > kMost ? shown + "..." : shown;
}

}  // namespace lockstep::plan
