#include "testing/cuda_stand_in/device_memory.h"

#include <driver_types.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "testing/cuda_stand_in/gpu.h"
#include "testing/cuda_stand_in/refused.h"

namespace lockstep::cuda_stand_in {
namespace {

constexpr std::size_t kRangeBytes = std::size_t{1} << 40;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSmallOffsetBytes = 512;  // cudaMalloc aligns small allocations to this and no more
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;

std::uintptr_t page_from(std::uintptr_t address) {
  return (address + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::uintptr_t map(int file, std::size_t at, std::size_t size_bytes) {
  void* const mapped =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, static_cast<off_t>(at));
  if (mapped == MAP_FAILED) throw Refused(cudaErrorMemoryAllocation, "the stand-in's memory cannot be mapped");
  return reinterpret_cast<std::uintptr_t>(mapped);
}

// Contents of an IPC handle: whose file, and which part of it.
struct Shared {
  static constexpr std::uint64_t kMark = 0x6c646e6168'637069;
  std::uint64_t mark;
  std::int64_t process;
  std::int64_t file;
  std::uint64_t at;
  std::uint64_t size_bytes;
};
static_assert(sizeof(Shared) <= sizeof(DeviceMemory::Handle));

}  // namespace

DeviceMemory::DeviceMemory() : free_bytes_(gpu::kMemoryBytes) {}

void DeviceMemory::create() {
  if (file_ >= 0) return;
  file_ = memfd_create("cuda_stand_in", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kRangeBytes)) != 0) {
    throw Refused(cudaErrorMemoryAllocation, "the stand-in's memory cannot be created");
  }
  begin_ = map(file_, 0, kRangeBytes);
  next_ = begin_;
}

std::uintptr_t DeviceMemory::allocate(std::size_t size_bytes, MemoryKind kind) {
  create();
  const bool counts = kind == MemoryKind::device;
  if ((counts && size_bytes > free_bytes_) || size_bytes > begin_ + kRangeBytes - next_ - 2 * kPageBytes) {
    throw Refused(cudaErrorMemoryAllocation, fmt::format("{} bytes asked for; {} are free", size_bytes, free_bytes_));
  }
  const std::uintptr_t begin = next_ + (size_bytes < kLargeBytes ? kSmallOffsetBytes : 0);
  next_ = page_from(begin + size_bytes) + kPageBytes;
  if (counts) free_bytes_ -= size_bytes;
  known_[begin] = {.begin = begin, .size_bytes = size_bytes, .kind = kind};
  events_.push_back({.allocated = true, .begin = begin, .size_bytes = size_bytes});
  return begin;
}

void DeviceMemory::release(std::uintptr_t begin, MemoryKind kind) {
  const auto found = known_.find(begin);
  if (found == known_.end() || found->second.kind != kind || found->second.freed) {
    const bool twice = found != known_.end() && found->second.freed;
    throw Refused(cudaErrorInvalidValue, twice ? "memory is released twice" : "no memory of this kind begins there");
  }
  Memory& memory = found->second;
  memory.freed = true;
  events_.push_back({.allocated = false, .begin = begin, .size_bytes = memory.size_bytes});
  if (kind == MemoryKind::device) free_bytes_ += memory.size_bytes;
  const std::uintptr_t page = begin / kPageBytes * kPageBytes;
  const std::size_t pages_bytes = page_from(begin + memory.size_bytes) - page;
  if (kind == MemoryKind::opened) {
    munmap(pointer(page), pages_bytes);
    known_.erase(found);
  } else {
    madvise(pointer(page), pages_bytes, MADV_REMOVE);  // gives the pages back
  }
}

DeviceMemory::Handle DeviceMemory::handle_of(std::uintptr_t address) const {
  const auto memory = at(address);
  if (!memory || memory->freed || memory->kind != MemoryKind::device) {
    throw Refused(cudaErrorInvalidValue, "only memory of cudaMalloc can be shared with another process");
  }
  const Shared shared{.mark = Shared::kMark,
                      .process = getpid(),
                      .file = file_,
                      .at = memory->begin - begin_,
                      .size_bytes = memory->size_bytes};
  Handle handle{};
  std::memcpy(handle.data(), &shared, sizeof shared);
  return handle;
}

std::uintptr_t DeviceMemory::open(const Handle& handle) {
  Shared shared{};
  std::memcpy(&shared, handle.data(), sizeof shared);
  if (shared.mark != Shared::kMark) throw Refused(cudaErrorInvalidResourceHandle, "no handle of cudaIpcGetMemHandle");
  if (shared.process == getpid()) {
    throw Refused(cudaErrorDeviceUninitialized, "a handle of this same process: only another process can open it");
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", shared.process, shared.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw Refused(cudaErrorMapBufferObjectFailed, "the process that shares this memory has ended");
  const std::size_t page = shared.at / kPageBytes * kPageBytes;
  const std::uintptr_t begin = map(file, page, shared.at - page + shared.size_bytes) + (shared.at - page);
  close(file);
  known_[begin] = {.begin = begin, .size_bytes = shared.size_bytes, .kind = MemoryKind::opened};
  events_.push_back({.allocated = true, .begin = begin, .size_bytes = shared.size_bytes});
  return begin;
}

std::optional<Memory> DeviceMemory::at(std::uintptr_t address) const {
  auto after = known_.upper_bound(address);
  if (after == known_.begin()) return std::nullopt;
  const Memory& memory = std::prev(after)->second;
  const bool inside = address < memory.begin + std::max(memory.size_bytes, std::size_t{1});
  return inside ? std::optional(memory) : std::nullopt;
}

void DeviceMemory::check(std::uintptr_t begin, std::size_t size_bytes, const char* use) const {
  const auto memory = at(begin);
  if (memory && memory->freed) throw Refused(cudaErrorInvalidValue, fmt::format("{}: the memory was freed", use));
  if (memory && size_bytes > memory->begin + memory->size_bytes - begin) {
    throw Refused(cudaErrorInvalidValue, fmt::format("{}: {} bytes from byte {} of an allocation of {} bytes", use,
                                                     size_bytes, begin - memory->begin, memory->size_bytes));
  }
  if (!memory && begin >= begin_ && begin < begin_ + kRangeBytes && file_ >= 0) {
    throw Refused(cudaErrorInvalidValue, fmt::format("{}: no allocation has this address", use));
  }
}

void DeviceMemory::announce_all() {
  events_.clear();
  for (const auto& [begin, memory] : known_) {
    if (!memory.freed) events_.push_back({.allocated = true, .begin = begin, .size_bytes = memory.size_bytes});
  }
}

// Whole pages of zeros are given back instead of written.
void DeviceMemory::fill(std::uintptr_t begin, int value, std::size_t size_bytes) const {
  const std::uintptr_t end = begin + size_bytes;
  const std::uintptr_t first = page_from(begin);
  const std::uintptr_t last = end / kPageBytes * kPageBytes;
  if (value != 0 || first >= last || madvise(pointer(first), last - first, MADV_REMOVE) != 0) {
    std::memset(pointer(begin), value, size_bytes);
    return;
  }
  std::memset(pointer(begin), 0, first - begin);
  std::memset(pointer(last), 0, end - last);
}

}  // namespace lockstep::cuda_stand_in
