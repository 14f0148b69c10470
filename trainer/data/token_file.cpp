#include "trainer/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

using Header = std::array<std::int32_t, 256>;

struct Kind {
  std::int32_t magic;
  std::int32_t version;
  int width;  // bytes per token
};
constexpr Kind kNarrow{20240520, 1, 2};
constexpr Kind kWide{20240801, 7, 4};

template <class T>
std::string_view bytes_of(const T* data, std::size_t count) {
  return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

}  // namespace

std::optional<TokenText::Part> tokens_in(const std::string& file, std::span<const std::uint8_t> bytes) {
  Header header{};
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  std::memcpy(header.data(), bytes.data(), sizeof(Header));
  for (const Kind& kind : {kNarrow, kWide}) {
    if (header[0] != kind.magic) continue;
    if (header[1] != kind.version) {
      throw core::usage_error(file + ": version " + std::to_string(header[1]) +
                              " of a file of tokens; allowed: " + std::to_string(kind.version));
    }
    const std::size_t there = bytes.size() - sizeof(Header);
    const auto count = static_cast<std::size_t>(std::max(header[2], 0));
    if (header[2] < 0 || there != count * static_cast<std::size_t>(kind.width)) {
      throw core::usage_error(file + ": its header says " + std::to_string(header[2]) + " tokens of " +
                              std::to_string(kind.width) + " bytes, and " + std::to_string(there) +
                              " bytes follow it; allowed: as many as it says");
    }
    return TokenText::Part{bytes.data() + sizeof(Header), count, kind.width};
  }
  return std::nullopt;
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t words)
    : path_(path), file_(path), narrow_(words <= 1 << 16) {
  const Header none{};
  file_.write(bytes_of(none.data(), none.size()));
}

void TokenFileWriter::write(std::span<const std::int32_t> tokens) {
  written_ += static_cast<std::int64_t>(tokens.size());
  if (written_ > std::numeric_limits<std::int32_t>::max()) {
    throw core::usage_error(path_ + ": more than 2147483647 tokens; allowed: as many a file");
  }
  if (!narrow_) return file_.write(bytes_of(tokens.data(), tokens.size()));
  std::vector<std::uint16_t> narrow(tokens.size());
  std::transform(tokens.begin(), tokens.end(), narrow.begin(),
                 [](std::int32_t token) { return static_cast<std::uint16_t>(token); });
  file_.write(bytes_of(narrow.data(), narrow.size()));
}

void TokenFileWriter::commit() {
  const Kind kind = narrow_ ? kNarrow : kWide;
  const Header header{kind.magic, kind.version, static_cast<std::int32_t>(written_)};
  file_.write_over_beginning(bytes_of(header.data(), header.size()));
  file_.commit();
}

}  // namespace lockstep::trainer
