// Byte sizes as people write them. K, M and G are 1024-based, as in nccl-tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::core {

// Parses "8", "1.5M", "64K", "64KiB", "2g". Returns nullopt if the text is not a size, negative, or above 2^62.
std::optional<std::int64_t> parse_size(std::string_view text);

// Returns "8 B", "64 KiB", "1.5 MiB": the largest unit in which the number is at least 1, with up to two decimals.
std::string format_size(std::int64_t size_bytes);

}  // namespace lockstep::core
