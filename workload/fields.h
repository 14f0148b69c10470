// Texts of fields, "tp=8,pp=4", by which users specify models and layouts: parsed with a table of fields.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace lockstep::workload {

// One field of the user's text.
struct FieldValue {
  std::string_view of;  // "layout"
  std::string_view name;
  std::string_view text;

  // "layout: tp=x: not a whole number; allowed: 1 or more"
  core::Error refused(const std::string& what, const std::string& allowed) const;
  std::int64_t integer(std::int64_t min, std::int64_t max = std::numeric_limits<std::int32_t>::max()) const;
  std::int32_t int32(std::int32_t min) const { return static_cast<std::int32_t>(integer(min)); }
  double number(double min) const;  // min itself is allowed
  bool yes_or_no() const;           // 1 or 0, yes or no
  std::size_t one_of(std::span<const std::string_view> names) const;
};

template <class T>
struct Field {
  const char* name;
  const char* takes;
  void (*read)(T& into, const FieldValue& value);
};

// Parts of `text` between `separator`s, without surrounding blanks.
std::vector<std::string_view> split(std::string_view text, char separator);
// Splits "name=value"; without '=' value is empty and `has_value` false.
struct NameAndValue {
  std::string_view name;
  std::string_view value;
  bool has_value = false;
};
NameAndValue name_and_value(std::string_view part);

// Reads all fields; refuses a name that is not in the table, or given twice.
template <class T>
void read_fields(T& into, std::string_view of, std::span<const std::string_view> parts,
                 std::span<const Field<T>> table) {
  std::string names;
  for (const Field<T>& field : table) names += std::string(names.empty() ? "" : " ") + field.name;
  std::vector<std::string_view> seen;
  for (const std::string_view part : parts) {
    const NameAndValue given = name_and_value(part);
    const FieldValue value{of, given.name, given.value};
    if (!given.has_value) throw value.refused("has no '='", names);
    for (const std::string_view earlier : seen) {
      if (earlier == given.name) throw value.refused("is given twice", "each field once");
    }
    seen.push_back(given.name);
    bool known = false;
    for (const Field<T>& field : table) {
      if (given.name != field.name) continue;
      field.read(into, value);
      known = true;
    }
    if (!known) throw value.refused("no such field", names);
  }
}

}  // namespace lockstep::workload
