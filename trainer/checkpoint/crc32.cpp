#include "trainer/checkpoint/crc32.h"

#include <zlib.h>

#include <charconv>

namespace lockstep::trainer {

void Crc32::add(std::span<const std::byte> bytes) {
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  value_ = static_cast<std::uint32_t>(crc32_z(value_, data, bytes.size()));
}

std::uint32_t crc32_of(std::string_view text) {
  Crc32 crc;
  crc.add(std::as_bytes(std::span(text)));
  return crc.value();
}

std::string crc32_text(std::uint32_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(8, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 4) *digit = kDigits[value & 15];
  return text;
}

std::optional<std::uint32_t> parse_crc32(std::string_view text) {
  std::uint32_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (result.ec != std::errc() || crc32_text(value) != text) return std::nullopt;  // only one spelling is valid
  return value;
}

}  // namespace lockstep::trainer
