// Text of users: sizes in bytes, the nearest known name to one that is mistyped, and files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::core {

// Byte sizes as people write them. K, M and G are 1024-based, as in nccl-tests.

// Parses "8", "1.5M", "64K", "64KiB", "2g". Returns nullopt if the text is not a size, negative, or above 2^62.
std::optional<std::int64_t> parse_size(std::string_view text);

// Returns "8 B", "64 KiB", "1.5 MiB": the largest unit in which the number is at least 1, with up to two decimals.
std::string format_size(std::int64_t size_bytes);

// For messages about a mistyped name: the name of a list that is nearest to it.

// Number of characters to insert, remove or replace to get from one text to the other (Levenshtein 1966).
inline std::size_t edit_distance(std::string_view from, std::string_view to) {
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

// "; nearest: ring", to be put before what is allowed. Empty if no name shares at least half of its characters. A name
// that contains the wrong one counts as near (dgx-h100 for h100), unless that has too few characters to mean anything.
template <class Names>
std::string nearest_text(std::string_view wrong, const Names& names) {
  constexpr std::size_t kLongest = 64;
  constexpr std::size_t kFewest = 4;
  std::string_view nearest;
  std::size_t least = std::min(wrong.size(), kLongest) / 2 + 1;
  for (const auto& one : names) {
    const std::string_view name = one;
    if (wrong.size() > kLongest) continue;
    const bool within = wrong.size() >= kFewest && name.find(wrong) != std::string_view::npos;
    const std::size_t distance = within ? 1 : edit_distance(wrong, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? "" : "; nearest: " + std::string(nearest);
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
