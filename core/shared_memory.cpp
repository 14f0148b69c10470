#include "core/shared_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.h"

namespace lockstep::core {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kHugeFromBytes = std::size_t{4}
                                       << 20;  // for smaller regions, clearing a huge page costs more than it saves
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSmallAlignment = 128;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

SharedRegion::SharedRegion(Sharing sharing, std::size_t size_bytes)
    : size_bytes_(round_up(size_bytes, size_bytes < kHugeFromBytes ? kPageBytes : kHugePageBytes)) {
  const int visibility = sharing == Sharing::threads ? MAP_PRIVATE : MAP_SHARED;
  void* mapping = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, visibility | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Error(Failure::internal, "cannot map " + std::to_string(size_bytes_) +
                                       " bytes of memory for the ranks: " + std::strerror(errno));
  }
  // A hint: fewer TLB misses if the kernel grants it.
  if (size_bytes_ >= kHugeFromBytes) madvise(mapping, size_bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapping);
}

SharedRegion::~SharedRegion() {
  munmap(data_, size_bytes_);
}

std::byte* Arena::allocate(std::size_t size_bytes) {
  const auto base = reinterpret_cast<std::uintptr_t>(data_);
  const std::size_t alignment = size_bytes >= kHugePageBytes ? kHugePageBytes : kSmallAlignment;
  const std::size_t begin = round_up(base + used_bytes_, alignment) - base;
  if (begin > size_bytes_ || size_bytes > size_bytes_ - begin) {
    throw Error(Failure::internal, "a rank's shared memory of " + std::to_string(size_bytes_) +
                                       " bytes is used up: " + std::to_string(used_bytes_) + " in use, " +
                                       std::to_string(size_bytes) + " more requested");
  }
  used_bytes_ = begin + size_bytes;
  return data_ + begin;
}

}  // namespace lockstep::core
