// CRC-32 (ISO 3309, as in zlib and PNG): detects every changed bit and every burst of up to 32 bits, and misses other
// damage once in 2^32. It is not a signature: it does not protect against deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::trainer {

class Crc32 {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint32_t value() const { return value_; }

 private:
  std::uint32_t value_ = 0;
};

std::uint32_t crc32_of(std::string_view text);

// Eight lower-case hexadecimal digits.
std::string crc32_text(std::uint32_t value);
std::optional<std::uint32_t> parse_crc32(std::string_view text);

}  // namespace lockstep::trainer
