// Reads the part of XML that files of plans use: elements in elements, with attributes; comments; a declaration in
// front. Text between elements, DOCTYPE, CDATA, processing instructions and character references by number are refused
// by name, so that no file can refer to another or grow while it is read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

struct XmlAttribute {
  std::string name;
  std::string value;
};

struct XmlElement {
  std::string name;
  int line = 0;  // where its '<' stands, from 1 on
  std::vector<XmlAttribute> attributes;
  std::vector<XmlElement> children;
};

// The document's one element. Throws a usage Error of one line that names `source`, line and column, the text found and
// the text allowed.
XmlElement parse_xml(std::string_view text, std::string_view source);

// The attributes of one element, with refusals that name the file, the line and what is allowed.
class XmlAttributes {
 public:
  // Refuses an element with another name than `name`, and attributes other than `known`.
  XmlAttributes(const XmlElement& element, std::string_view source, std::string_view name,
                std::initializer_list<std::string_view> known);

  int line() const { return element_.line; }
  const std::string* find(std::string_view name) const;  // nullptr: absent
  int integer(std::string_view name, int least, int most) const;
  int integer_or(int if_absent, std::string_view name, int least, int most) const;
  std::int64_t long_integer_or(std::int64_t if_absent, std::string_view name, std::int64_t least,
                               std::int64_t most) const;

  // The entry of `table` whose name, by `name_of`, is the attribute's value.
  template <typename Table, typename NameOf>
  const auto& entry(std::string_view name, const Table& table, const NameOf& name_of) const {
    const std::string* const value = find(name);
    std::string allowed;
    for (const auto& one : table) {
      if (value != nullptr && name_of(one) == *value) return one;
      allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(one));
    }
    fail(name, allowed);
  }

  // Throws the refusal of the attribute's value, or of its absence.
  [[noreturn]] void fail(std::string_view name, const std::string& allowed) const;

 private:
  const XmlElement& element_;  // outlives this object
  std::string_view source_;
};

// The value with the characters that XML reserves written as entities, for use between double quotes.
std::string xml_escaped(std::string_view value);

// Up to 40 printable characters of what was found in a file, for one line of a message.
std::string shown_in_message(std::string_view found);

}  // namespace lockstep::plan
