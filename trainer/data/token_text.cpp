#include "trainer/data/token_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

template <class T>
void widen(const void* data, std::size_t first, std::span<std::int32_t> to) {
  const T* const from = static_cast<const T*>(data) + first;
  std::transform(from, from + to.size(), to.begin(), [](T token) { return static_cast<std::int32_t>(token); });
}

}  // namespace

void TokenText::append(const Part& part) {
  if (part.count == 0) return;
  parts_.push_back(part);
  ends_.push_back(size() + part.count);
}

TokenText TokenText::part(std::size_t first, std::size_t count) const {
  LOCKSTEP_CHECK(first + count <= size(), "a part of the text");
  TokenText made;
  std::size_t begin = 0;
  for (const Part& one : parts_) {
    const std::size_t from = std::clamp(first, begin, begin + one.count);
    const std::size_t to = std::clamp(first + count, begin, begin + one.count);
    const auto* const data = static_cast<const std::byte*>(one.data);
    made.append({data + (from - begin) * static_cast<std::size_t>(one.width), to - from, one.width});
    begin += one.count;
  }
  return made;
}

void TokenText::copy(std::size_t first, std::span<std::int32_t> to) const {
  LOCKSTEP_CHECK(first + to.size() <= size(), "tokens of the text");
  auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (; !to.empty(); ++at) {
    const Part& part = parts_[at];
    const std::size_t begin = ends_[at] - part.count;
    const std::span<std::int32_t> here = to.first(std::min(to.size(), ends_[at] - first));
    if (part.width == 1) widen<std::uint8_t>(part.data, first - begin, here);
    if (part.width == 2) widen<std::uint16_t>(part.data, first - begin, here);
    if (part.width == 4) widen<std::uint32_t>(part.data, first - begin, here);
    first += here.size();
    to = to.subspan(here.size());
  }
}

std::span<const std::uint8_t> TokenText::bytes() const {
  if (parts_.size() != 1 || parts_[0].width != 1) return {};
  return {static_cast<const std::uint8_t*>(parts_[0].data), parts_[0].count};
}

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
