#include "core/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <system_error>

namespace lockstep::core {
namespace {

// Returns the factor of a unit: "", "K", "KB", "KiB", in any case. nullopt for other text.
std::optional<double> unit_factor(std::string_view unit) {
  if (unit.empty()) return 1;
  const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front())));
  const std::string_view rest = unit.substr(1);
  if (letter == 'B' && rest.empty()) return 1;
  if (!rest.empty() && rest != "B" && rest != "b" && rest != "iB") return std::nullopt;
  switch (letter) {
    case 'K':
      return 0x1p10;
    case 'M':
      return 0x1p20;
    case 'G':
      return 0x1p30;
    default:
      return std::nullopt;
  }
}

// Number of characters to insert, remove or replace to get from one text to the other (Levenshtein 1966).
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);  // distances of a prefix of `from` to each prefix of `to`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, replaced});
    }
  }
  return row.back();
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : " ").append(name);
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <typename T>
T in_range(const OptionText& option, const char* kind, bool (*fits)(T, T, T), T min, T max,
           const std::string& allowed) {
  const auto value = parse_number<T>(option.text);
  if (!value) throw option.refused(std::string("not ") + kind, allowed);
  if (!fits(*value, min, max)) throw option.refused("out of range", allowed);
  return *value;
}

// "from 0 to 5", or "of at least 0" without an upper limit.
std::string range_text(double min, double max) {
  return max < std::numeric_limits<double>::max() ? fmt::format("from {:g} to {:g}", min, max)
                                                  : fmt::format("of at least {:g}", min);
}

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  const auto factor = unit_factor(text.substr(static_cast<std::size_t>(end - text.data())));
  if (!factor) return std::nullopt;
  const double size = number * *factor;
  if (!(size >= 0) || size > 0x1p62) return std::nullopt;
  return std::llround(size);
}

std::string format_size(std::int64_t size_bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(size_bytes);
  std::size_t unit = 0;
  while (std::abs(size) >= 1024 && unit + 1 < units.size()) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", std::round(size * 100) / 100, units[unit]);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

NameAndValue name_and_value(std::string_view part) {
  const std::size_t sign = part.find('=');
  if (sign == std::string_view::npos) return {part, {}, false};
  return {trimmed(part.substr(0, sign)), trimmed(part.substr(sign + 1)), true};
}

std::string nearest_text(std::string_view wrong, std::span<const std::string_view> names) {
  constexpr std::size_t kLongest = 64;
  constexpr std::size_t kFewest = 4;
  if (wrong.size() > kLongest) return "";
  std::string_view nearest;
  std::size_t least = wrong.size() / 2 + 1;
  const std::string_view word = wrong.substr(std::min(wrong.find_first_not_of('-'), wrong.size()));
  for (const std::string_view name : names) {
    const bool within = word.size() >= kFewest && name.find(word) != std::string_view::npos;
    const std::size_t distance = within ? 1 : edit_distance(wrong, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? "" : "; nearest: " + std::string(nearest);
}

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line.append(c == '\n' ? "\\n" : c == '\0' ? "\\0" : std::string(1, c));
  return line;
}

Error unknown_name(const std::string& what, std::string_view wrong, std::span<const std::string_view> names,
                   const std::string& more) {
  return usage_error(what + nearest_text(wrong, names) + "; allowed: " + joined(names) + more);
}

Error OptionText::refused(const std::string& what, const std::string& allowed) const {
  const bool valued = !names.empty() && (between == ' ' || !text.empty());
  return usage_error(
      one_line(names + (valued ? std::string(1, between) : "") + text + ": " + what + "; allowed: " + allowed));
}

Error OptionText::refused(const Error& error) const {
  const std::string why = one_line(error.what());
  if (why.starts_with(names + between)) return {error.failure(), why};
  const std::string quoted = one_line(text + ": ");
  return usage_error(one_line(names) + between + (why.starts_with(quoted) ? why : quoted + why));
}

std::int64_t OptionText::integer(std::int64_t min, std::int64_t max) const {
  const auto fits = [](std::int64_t value, std::int64_t from, std::int64_t to) { return value >= from && value <= to; };
  return in_range<std::int64_t>(*this, "an integer", fits, min, max, fmt::format("an integer from {} to {}", min, max));
}

double OptionText::number(double min, double max) const {
  const auto fits = [](double value, double above, double to) { return value > above && value <= to; };
  return in_range<double>(*this, "a number", fits, min, max,
                          fmt::format("a number above {:g}, at most {:g}", min, max));
}

double OptionText::number_from(double min, double max) const {
  const auto fits = [](double value, double from, double to) { return value >= from && value <= to; };
  return in_range<double>(*this, "a number", fits, min, max, "a number " + range_text(min, max));
}

bool OptionText::yes_or_no() const {
  constexpr std::array<std::string_view, 4> kNames{"0", "1", "no", "yes"};
  return index_in(kNames, "expected 0 or 1") % 2 == 1;
}

std::int64_t OptionText::size_bytes() const {
  const auto size = parse_size(text);
  if (!size) throw refused("not a size", "bytes, or a number with K, M or G (1024-based)");
  return *size;
}

std::size_t OptionText::index_in(std::span<const std::string_view> known, const char* what) const {
  const auto found = std::find(known.begin(), known.end(), text);
  if (found == known.end()) throw refused(what + nearest_text(text, known), joined(known));
  return static_cast<std::size_t>(found - known.begin());
}

std::vector<OptionText> OptionText::list(char separator) const {
  std::vector<OptionText> parts;
  for (const std::string_view part : split(text, separator)) {
    if (part.empty()) throw refused("an empty item", std::string("items with a single ") + separator + " between them");
    parts.push_back({names, std::string(part), between});
  }
  return parts;
}

int integer(const OptionText& value, std::int64_t min, std::int64_t max) {
  return static_cast<int>(value.integer(min, max));
}

std::vector<int> integer_list(const OptionText& value, std::int64_t min, std::int64_t max) {
  std::vector<int> integers;
  for (const OptionText& part : value.list()) integers.push_back(integer(part, min, max));
  return integers;
}

std::vector<std::string> text_list(const OptionText& value, char between) {
  std::vector<std::string> texts;
  for (const OptionText& part : value.list(between)) texts.push_back(part.text);
  return texts;
}

std::string file_name(const OptionText& value) {
  if (value.text.empty()) throw value.refused("no name", "the name of a file");
  return value.text;
}

std::vector<GivenField> given_fields(std::string_view of, std::span<const std::string_view> parts,
                                     std::span<const std::string_view> names) {
  std::vector<GivenField> fields;
  for (const std::string_view part : parts) {
    const NameAndValue given = name_and_value(part);
    const std::string prefix = of.empty() ? "" : std::string(of) + ": ";
    const OptionText value{prefix + std::string(part.empty() ? "an empty field" : given.name), std::string(given.value),
                           '='};
    const auto* const found = std::find(names.data(), names.data() + names.size(), given.name);
    const auto index = static_cast<std::size_t>(found - names.data());
    if (!given.has_value) throw value.refused("has no '='", joined(names));
    if (index == names.size()) throw value.refused("no such field" + nearest_text(given.name, names), joined(names));
    for (const GivenField& earlier : fields) {
      if (earlier.index == index) throw value.refused("is given twice", "each field once");
    }
    fields.push_back({index, value});
  }
  return fields;
}

std::string bytes_of_file(const std::string& path, const std::string& allowed, const std::string& shown) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (std::filesystem::is_directory(path)) {
    errno = EISDIR;
  } else if (file && (file.peek() == std::ifstream::traits_type::eof() || text << file.rdbuf())) {
    return text.str();
  }
  throw usage_error(fmt::format("{}: cannot be read: {}; allowed: {}", shown.empty() ? path : shown,
                                std::generic_category().message(errno), allowed));
}

std::string text_of_file(const std::string& path, const std::string& allowed, const std::string& shown) {
  return plain_text(bytes_of_file(path, allowed, shown), shown.empty() ? path : shown);
}

std::string plain_text(std::string text, const std::string& shown) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw usage_error(shown + ": is in UTF-16; allowed: UTF-8");
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool ends_line = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (!ends_line) text[kept++] = text[i];
  }
  text.resize(kept);
  return text;
}

}  // namespace lockstep::core
