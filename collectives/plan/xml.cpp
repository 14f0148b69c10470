#include "collectives/plan/msccl_parts.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "core/error.h"

namespace lockstep::plan {
namespace {

constexpr int kMaxDepth = 16;  // a plan has four levels
constexpr const char* kAllowed =
    "one element of XML, with attributes, elements and comments (no text, DOCTYPE, CDATA, <?)";

// Turns pugixml's tree into ours; refuses what a plan does not have.
class XmlReader {
 public:
  XmlReader(std::string_view text, std::string_view source) : text_(text), source_(source) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_ends_.push_back(i);
    }
  }

  XmlElement document() const {
    if (const std::size_t zero = text_.find('\0'); zero != std::string_view::npos) fail(zero, "a byte is 0", kAllowed);
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_buffer(
        text_.data(), text_.size(), pugi::parse_default | pugi::parse_pi | pugi::parse_doctype | pugi::parse_fragment,
        pugi::encoding_utf8);
    if (!result) fail(static_cast<std::size_t>(result.offset), result.description(), kAllowed);
    XmlElement all;
    add_children(document, all, 0);
    if (all.children.size() != 1) fail(text_.size(), fmt::format("{} elements", all.children.size()), kAllowed);
    return std::move(all.children.front());
  }

 private:
  std::size_t line_of(std::size_t at) const {
    return 1 +
           static_cast<std::size_t>(std::lower_bound(line_ends_.begin(), line_ends_.end(), at) - line_ends_.begin());
  }

  [[noreturn]] void fail(std::size_t at, std::string_view why, std::string_view allowed) const {
    at = std::min(at, text_.size());
    const std::size_t line = line_of(at);
    const std::string_view rest = text_.substr(at, text_.find('\n', at) - at);
    const std::string there =
        at + 1 >= text_.size() ? "the end of the file" : fmt::format("'{}'", shown_in_message(rest));
    throw core::usage_error(fmt::format("{}:{}:{}: {} at {}; allowed: {}", source_, line,
                                        at + 1 - (line > 1 ? line_ends_[line - 2] + 1 : 0), why, there, allowed));
  }

  void add_children(const pugi::xml_node& node, XmlElement& to, int depth) const {
    for (const pugi::xml_node& child : node) {
      const auto at = text_.find_first_not_of(" \t\r\n", static_cast<std::size_t>(child.offset_debug()));
      if (child.type() != pugi::node_element) fail(at, "no element", kAllowed);
      if (depth == kMaxDepth) fail(at, "nested elements", fmt::format("up to {} deep", kMaxDepth));
      XmlElement& element = to.children.emplace_back(XmlElement{child.name(), static_cast<int>(line_of(at)), {}, {}});
      for (const pugi::xml_attribute& attribute : child.attributes()) {
        if (!element.attributes.try_emplace(attribute.name(), attribute.value()).second) {
          fail(at, fmt::format("attribute {} twice", shown_in_message(attribute.name())), "once");
        }
      }
      add_children(child, element, depth + 1);
    }
  }

  std::string_view text_;
  std::string_view source_;
  std::vector<std::size_t> line_ends_;
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
  for (const auto& [attribute, value] : element.attributes) {
    if (std::find(known.begin(), known.end(), attribute) != known.end()) continue;
    throw core::usage_error(fmt::format("{}:{}: <{}> has the attribute {}; allowed: {}", source, element.line, name,
                                        shown_in_message(attribute), fmt::join(known, ", ")));
  }
}

const std::string* XmlAttributes::find(std::string_view name) const {
  const auto found = element_.attributes.find(name);
  return found == element_.attributes.end() ? nullptr : &found->second;
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
    escaped += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '"' ? "&quot;" : std::string(1, c);
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
