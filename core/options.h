// Options as users write them: numbers, sizes, lists and fields of flags, of texts such as "tp=8,pp=4", and of
// environment variables. All are read here and refused in one form: "NAME TEXT: what is wrong; allowed: ...".
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace lockstep::core {

// The whole text as a number; nothing if it is anything else.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Byte sizes as people write them, "8", "1.5M", "64K", "64KiB", "2g": K, M and G are 1024-based, as in nccl-tests.
// Returns nothing if the text is not a size, negative, or above 2^62.
std::optional<std::int64_t> parse_size(std::string_view text);
// Returns "8 B", "64 KiB", "1.5 MiB": the largest unit in which the number is at least 1, with up to two decimals.
std::string format_size(std::int64_t size_bytes);

// Parts of `text` between separators, without surrounding blanks; "" has one, which is empty.
std::vector<std::string_view> split(std::string_view text, char separator);
// "name=value"; without '=' the value is empty and `has_value` is false.
struct NameAndValue {
  std::string_view name;
  std::string_view value;
  bool has_value = false;
};
NameAndValue name_and_value(std::string_view part);

// "; nearest: ring", to be put before what is allowed. Empty if no name shares at least half of its characters. A name
// that contains the wrong one counts as near (dgx-h100 for h100), unless that has too few characters to mean anything.
std::string nearest_text(std::string_view wrong, std::span<const std::string_view> names);

// The text in one line: a value that a refusal quotes may hold line ends, and zeros, which would end the message.
std::string one_line(const std::string& text);
// The refusal of a name: "WHAT; nearest: ring; allowed: " and the names, and what else is allowed.
Error unknown_name(const std::string& what, std::string_view wrong, std::span<const std::string_view> names,
                   const std::string& more = "");

// An option as it was given: a flag ("-b,--minbytes" and "12Q"), or a field of a text ("layout: tp" and "x", with '='
// between them in messages). Each reader refuses text that it cannot read with a usage Error.
struct OptionText {
  std::string names;
  std::string text;
  char between = ' ';

  // Error with the text "-b,--minbytes 12Q: not a size; allowed: ..."
  Error refused(const std::string& what, const std::string& allowed) const;
  // "-b,--minbytes 12Q: <text of another error>"; an error that begins with the option's names stays as it is.
  Error refused(const Error& error) const;

  // The value that a parser makes of the text; if it throws, the option's name is put before its message.
  template <class Parse>
  auto parsed_by(const Parse& parse) const {
    try {
      return parse(text);
    } catch (const Error& error) {
      throw refused(error);
    }
  }

  // The text itself, if the parser takes it.
  template <class Parse>
  std::string checked_by(const Parse& parse) const {
    parsed_by(parse);
    return text;
  }

  std::int64_t integer(std::int64_t min, std::int64_t max = std::numeric_limits<std::int32_t>::max()) const;
  std::int32_t int32(std::int32_t min, std::int32_t max = std::numeric_limits<std::int32_t>::max()) const {
    return static_cast<std::int32_t>(integer(min, max));
  }
  double number(double min, double max) const;                                            // min itself is not allowed
  double number_from(double min, double max = std::numeric_limits<double>::max()) const;  // min is allowed
  bool yes_or_no() const;                                                                 // yes or 1, no or 0
  std::int64_t size_bytes() const;
  // Index of the text among these names; `what` is wrong if it is none.
  std::size_t index_in(std::span<const std::string_view> known, const char* what = "not known") const;
  template <class Names>
  std::size_t index_of(const Names& known) const {
    return index_in(std::vector<std::string_view>(std::begin(known), std::end(known)));
  }
  template <class Names>
  const std::string& one_of(const Names& known) const {
    index_of(known);
    return text;
  }

  // The parts between commas or another separator, without surrounding blanks; no part may be empty.
  std::vector<OptionText> list(char separator = ',') const;
};

int integer(const OptionText& value, std::int64_t min, std::int64_t max);  // `max` has to fit
std::vector<int> integer_list(const OptionText& value, std::int64_t min, std::int64_t max);
std::vector<std::string> text_list(const OptionText& value, char between = ',');
std::string file_name(const OptionText& value);  // not empty

// A field of a text that specifies a T, as an entry of a table.
template <class T>
struct Field {
  const char* name;
  const char* takes;  // for lists of the fields
  void (*read)(T& into, const OptionText& value);
};

// A field that was given, and the index of its name.
struct GivenField {
  std::size_t index = 0;
  OptionText value;
};
// Splits parts "name=value". Refuses a part without '=', and a name that is not among these or is given twice. `of`
// begins every message ("layout: "), unless it is empty.
std::vector<GivenField> given_fields(std::string_view of, std::span<const std::string_view> parts,
                                     std::span<const std::string_view> names);

// Reads the fields of a text by a table.
template <class T>
void read_fields(T& into, std::string_view of, std::span<const std::string_view> parts,
                 std::span<const Field<T>> table) {
  std::vector<std::string_view> names;
  for (const Field<T>& field : table) names.emplace_back(field.name);
  for (const GivenField& field : given_fields(of, parts, names)) table[field.index].read(into, field.value);
}

// Files of users.

// Throws a usage Error if the file cannot be read: "SHOWN: cannot be read: REASON; allowed: ALLOWED". `shown`: the file
// as the user named it, with its flag if that helps ("--csv mine.csv"); empty: the path.
std::string bytes_of_file(const std::string& path, const std::string& allowed, const std::string& shown = "");
// The same as text: without the byte-order mark that some editors put in front of UTF-8, and with one "\n" at each end
// of a line, where Windows writes "\r\n". A file in UTF-16 is refused by name.
std::string text_of_file(const std::string& path, const std::string& allowed, const std::string& shown = "");
// The same for text that was read already; `shown` names it in the refusal.
std::string plain_text(std::string text, const std::string& shown);

}  // namespace lockstep::core
