#include "workload/fields.h"

#include <cmath>
#include <cstdlib>

namespace lockstep::workload {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string plain(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

core::Error FieldValue::refused(const std::string& what, const std::string& allowed) const {
  std::string given = name.empty() ? "an empty field" : std::string(name);
  if (!text.empty()) given += "=" + std::string(text);
  return core::usage_error(std::string(of) + ": " + given + ": " + what + "; allowed: " + allowed);
}

std::int64_t FieldValue::integer(std::int64_t min, std::int64_t max) const {
  const std::string copy(text);
  char* end = nullptr;
  const std::int64_t value = std::strtoll(copy.c_str(), &end, 10);
  const std::string allowed = "whole numbers from " + std::to_string(min) + " to " + std::to_string(max);
  if (copy.empty() || *end != '\0') throw refused("not a whole number", allowed);
  if (value < min || value > max) throw refused("out of range", allowed);
  return value;
}

double FieldValue::number(double min) const {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  const std::string allowed = "numbers of at least " + plain(min);
  if (copy.empty() || *end != '\0' || !std::isfinite(value)) throw refused("not a number", allowed);
  if (value < min) throw refused("out of range", allowed);
  return value;
}

bool FieldValue::yes_or_no() const {
  if (text == "1" || text == "yes") return true;
  if (text == "0" || text == "no") return false;
  throw refused("not yes or no", "yes no 1 0");
}

std::size_t FieldValue::one_of(std::span<const std::string_view> names) const {
  std::string allowed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return i;
    allowed += (allowed.empty() ? "" : " ") + std::string(names[i]);
  }
  throw refused("not known", allowed);
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

}  // namespace lockstep::workload
