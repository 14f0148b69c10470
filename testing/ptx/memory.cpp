#include "testing/ptx/memory.h"

#include <algorithm>
#include <utility>

namespace lockstep::ptx {

Shadow::Shadow(std::size_t size_bytes, bool initialized)
    : pages_(size_bytes / kPageBytes + 1), initialized_(size_bytes, initialized) {}

bool Shadow::is_initialized(std::size_t begin, std::size_t bytes) const {
  for (std::size_t i = begin; i < begin + bytes; ++i) {
    if (!initialized_[i]) return false;
  }
  return true;
}

void Shadow::set_initialized(std::size_t begin, std::size_t bytes, bool value) {
  const auto first = initialized_.begin() + static_cast<std::ptrdiff_t>(begin);
  std::fill(first, first + static_cast<std::ptrdiff_t>(bytes), value);
}

Shadow::Page& Shadow::page_for(std::size_t begin, std::size_t bytes) {
  Page& page = pages_[begin / kPageBytes];
  int wanted = page.shift;
  while (wanted > 0 && ((begin | bytes) & ((std::size_t{1} << wanted) - 1)) != 0) --wanted;
  if (page.cells.empty()) {
    page.cells.resize(kPageBytes >> wanted);
  } else if (wanted < page.shift) {
    std::vector<Cell> finer(kPageBytes >> wanted);
    for (std::size_t i = 0; i < finer.size(); ++i) finer[i] = page.cells[i >> (page.shift - wanted)];
    page.cells = std::move(finer);
  }
  page.shift = wanted;
  return page;
}

void GlobalMemory::add(void* begin, std::size_t size_bytes, bool initialized) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  all_.insert_or_assign(address, Allocation{.begin = static_cast<std::byte*>(begin),
                                            .size_bytes = size_bytes,
                                            .shadow = Shadow(size_bytes, initialized)});
  last_ = nullptr;
}

void GlobalMemory::remove(void* begin) {
  all_.erase(reinterpret_cast<std::uintptr_t>(begin));
  last_ = nullptr;
}

void GlobalMemory::set_initialized(const void* begin, std::size_t size_bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  if (Allocation* found = find(address, size_bytes)) {
    found->shadow.set_initialized(address - reinterpret_cast<std::uintptr_t>(found->begin), size_bytes);
  }
}

Allocation* GlobalMemory::find(std::uintptr_t address, std::size_t size_bytes) {
  const auto holds = [&](const Allocation& one) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.begin);
    return begin <= address && address + size_bytes <= begin + one.size_bytes;
  };
  if (last_ != nullptr && holds(*last_)) return last_;
  auto next = all_.upper_bound(address);
  if (next == all_.begin()) return nullptr;
  Allocation& one = std::prev(next)->second;
  if (!holds(one)) return nullptr;
  last_ = &one;
  return last_;
}

}  // namespace lockstep::ptx
