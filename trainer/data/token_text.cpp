#include "trainer/data/token_text.h"

#include <algorithm>

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

}  // namespace lockstep::trainer
