#include "core/user_text.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "core/error.h"

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
