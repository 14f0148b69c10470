#include "bench/sweep/flag_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/size.h"

namespace lockstep::sweep {
namespace {

// The whole text as a number, or nothing.
template <typename T>
std::optional<T> whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

core::Error FlagValue::refused(const std::string& what, const std::string& allowed) const {
  return core::usage_error(fmt::format("{} {}: {}; allowed: {}", names, text, what, allowed));
}

core::Error FlagValue::refused(const core::Error& error) const {
  return core::usage_error(fmt::format("{} {}: {}", names, text, error.what()));
}

std::int64_t FlagValue::integer(std::int64_t min, std::int64_t max) const {
  const std::string allowed = fmt::format("an integer from {} to {}", min, max);
  const auto value = whole<std::int64_t>(text);
  if (!value) throw refused("not an integer", allowed);
  if (*value < min || *value > max) throw refused("out of range", allowed);
  return *value;
}

double FlagValue::number(double min, double max) const {
  const std::string allowed = fmt::format("a number above {:g}, at most {:g}", min, max);
  const auto value = whole<double>(text);
  if (!value) throw refused("not a number", allowed);
  if (!(*value > min && *value <= max)) throw refused("out of range", allowed);
  return *value;
}

double FlagValue::number_from(double min, double max) const {
  const std::string allowed = fmt::format("a number from {:g} to {:g}", min, max);
  const auto value = whole<double>(text);
  if (!value) throw refused("not a number", allowed);
  if (!(*value >= min && *value <= max)) throw refused("out of range", allowed);
  return *value;
}

bool FlagValue::zero_or_one() const {
  if (text != "0" && text != "1") throw refused("not a switch", "0 or 1");
  return text == "1";
}

std::int64_t FlagValue::size_bytes() const {
  const auto size = core::parse_size(text);
  if (!size) throw refused("not a size", "bytes, or a number with K, M or G (1024-based)");
  return *size;
}

std::vector<FlagValue> FlagValue::list() const {
  std::vector<FlagValue> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) throw refused("an empty item", "items between single commas");
    parts.push_back({names, text.substr(begin, end - begin)});
    begin = end + 1;
  }
  return parts;
}

int integer(const FlagValue& value, std::int64_t min, std::int64_t max) {
  return static_cast<int>(value.integer(min, max));
}

std::vector<int> integer_list(const FlagValue& value, std::int64_t min, std::int64_t max) {
  std::vector<int> integers;
  for (const FlagValue& part : value.list()) integers.push_back(integer(part, min, max));
  return integers;
}

std::vector<std::string> text_list(const FlagValue& value) {
  std::vector<std::string> texts;
  for (const FlagValue& part : value.list()) texts.push_back(part.text);
  return texts;
}

}  // namespace lockstep::sweep
