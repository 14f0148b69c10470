// The CPU as a Device, and the memory that it hands out.
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/index.h"
#include "core/wait.h"

namespace lockstep::core {

// Tracks the blocks that a device has handed out, and the current and peak number of bytes.
class MemoryLedger {
 public:
  void add(void* memory, std::size_t size_bytes) {
    blocks_.emplace(memory, size_bytes);
    allocated_bytes_ += size_bytes;
    peak_bytes_ = std::max(peak_bytes_, allocated_bytes_);
  }

  // Removes a block and returns its size. An unknown block is a bug of ours.
  std::size_t remove(void* memory) {
    const auto block = blocks_.find(memory);
    LOCKSTEP_CHECK(block != blocks_.end(), "release of memory that this device did not allocate, or twice");
    const std::size_t size_bytes = block->second;
    blocks_.erase(block);
    allocated_bytes_ -= size_bytes;
    return size_bytes;
  }

  const std::unordered_map<void*, std::size_t>& blocks() const { return blocks_; }
  std::size_t allocated_bytes() const { return allocated_bytes_; }
  std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  std::unordered_map<void*, std::size_t> blocks_;
  std::size_t allocated_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

// Private host memory, allocated directly from the kernel, so that a block is zeroed, aligned, backed by huge pages if
// it is large, and refused before the machine swaps or kills processes.
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kHugeFromBytes = std::size_t{4} << 20;
constexpr std::size_t kAskFromBytes = std::size_t{1}
                                      << 20;  // smaller blocks are not checked: reading the files takes 0.1 ms
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// MemAvailable of /proc/meminfo, which includes reclaimable page cache.
std::optional<std::size_t> meminfo_available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string field;
  std::size_t kib = 0;
  while (meminfo >> field) {
    if (field == "MemAvailable:" && meminfo >> kib) return kib * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  if (file >> value) return value;  // fails on "max", which means no limit
  return std::nullopt;
}

// Returns the number after a word in a file of "word number" lines; 0 if the word is missing.
std::size_t number_after(const std::string& word, const std::string& path) {
  std::ifstream file(path);
  std::string key;
  std::size_t value = 0;
  while (file >> key >> value) {
    if (key == word) return value;
  }
  return 0;
}

// Returns the limit of a control group minus its usage; file pages that are not in use can be reclaimed and do not
// count.
std::optional<std::size_t> group_available_bytes(const std::string& limit_path, const std::string& used_path,
                                                 const std::string& stat_path, const std::string& cache_word) {
  const auto limit_bytes = number_in(limit_path);
  const auto used_bytes = number_in(used_path);
  if (!limit_bytes || !used_bytes) return std::nullopt;
  const std::size_t held_bytes = *used_bytes - std::min(*used_bytes, number_after(cache_word, stat_path));
  return *limit_bytes - std::min(*limit_bytes, held_bytes);
}

// Inside a container, its own group is at the root of the mount. Tries version 2 of control groups, then version 1.
std::size_t group_available_bytes() {
  const std::string v2 = "/sys/fs/cgroup/";
  const std::string v1 = "/sys/fs/cgroup/memory/";
  const auto new_style =
      group_available_bytes(v2 + "memory.max", v2 + "memory.current", v2 + "memory.stat", "inactive_file");
  const auto old_style = group_available_bytes(v1 + "memory.limit_in_bytes", v1 + "memory.usage_in_bytes",
                                               v1 + "memory.stat", "total_inactive_file");
  return std::min(new_style.value_or(kNoLimit), old_style.value_or(kNoLimit));
}

// Bytes that a block takes from the kernel: whole pages of the size that will back it.
std::size_t mapped_bytes(std::size_t size_bytes) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t unit = size_bytes >= kHugeFromBytes ? kHugePageBytes : page_bytes;
  return round_up(std::max(size_bytes, std::size_t{1}), unit);
}

[[noreturn]] void refuse(std::size_t size_bytes, const std::string& why) {
  throw usage_error("allocating " + std::to_string(size_bytes) + " bytes of host memory: " + why);
}

void* map(std::size_t size_bytes, std::size_t wanted_bytes) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) refuse(wanted_bytes, std::string("mmap: ") + std::strerror(errno));
  return memory;
}

// Maps one huge page more than needed and unmaps both ends, so that the rest begins on a huge page boundary.
void* map_huge(std::size_t size_bytes, std::size_t wanted_bytes) {
  auto* whole = static_cast<std::byte*>(map(size_bytes + kHugePageBytes, wanted_bytes));
  const auto address = reinterpret_cast<std::uintptr_t>(whole);
  const std::size_t head = round_up(address, kHugePageBytes) - address;
  if (head > 0) munmap(whole, head);
  if (head < kHugePageBytes) munmap(whole + head + size_bytes, kHugePageBytes - head);
  madvise(whole + head, size_bytes, MADV_HUGEPAGE);  // a hint: the memory is usable without
  return whole + head;
}

void* allocate_private(std::size_t size_bytes) {
  if (size_bytes >= kAskFromBytes) {
    const std::size_t available_bytes = available_host_bytes();
    if (size_bytes > available_bytes) refuse(size_bytes, "only " + std::to_string(available_bytes) + " are available");
  }
  const std::size_t mapped = mapped_bytes(size_bytes);
  return size_bytes >= kHugeFromBytes ? map_huge(mapped, size_bytes) : map(mapped, size_bytes);
}

}  // namespace

std::size_t available_host_bytes() {
  return std::min(meminfo_available_bytes().value_or(kNoLimit), group_available_bytes());
}

HostAllocator private_memory() {
  return {.allocate = allocate_private,
          .release = [](void* memory, std::size_t size_bytes) { munmap(memory, mapped_bytes(size_bytes)); }};
}

namespace {

class CpuStream final : public Stream {
 public:
  void synchronize() override {}
  bool done() override { return true; }
  void* native() const override { return nullptr; }
  void wait(const Event& /*event*/) override {}
  bool can_capture() const override { return false; }
  void begin_capture() override { refuse_capture(); }
  std::unique_ptr<Graph> end_capture() override { refuse_capture(); }

 private:
  [[noreturn]] static void refuse_capture() {
    throw usage_error("a graph of captured work: on the CPU work is done when its call returns; allowed: CUDA devices");
  }
};

class CpuEvent final : public Event {
 public:
  void record(Stream& /*stream*/) override { at_ = Clock::now(); }
  void synchronize() override {}
  bool done() override { return true; }
  void* native() const override { return nullptr; }
  double us_since(const Event& start) const override {
    const auto* other = dynamic_cast<const CpuEvent*>(&start);
    LOCKSTEP_CHECK(other != nullptr, "the events belong to different devices");
    return us_between(other->at_, at_);
  }

 private:
  Clock::time_point at_;
};

// Returns the model name of the first processor.
std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(HostAllocator allocator) : allocator_(std::move(allocator)) {}
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;
  ~CpuDevice() override {
    for (const auto& [memory, size_bytes] : ledger_.blocks()) allocator_.release(memory, size_bytes);
    for (const auto& [memory, size_bytes] : pinned_.blocks()) plain_.release(memory, size_bytes);
  }

  std::string name() const override { return cpu_name(); }
  int index() const override { return 0; }
  bool is_host_memory() const override { return true; }

  void* allocate(std::size_t size_bytes) override {
    void* memory = allocator_.allocate(size_bytes);
    ledger_.add(memory, size_bytes);
    return memory;
  }
  void release(void* memory) override { allocator_.release(memory, ledger_.remove(memory)); }
  std::size_t allocated_bytes() const override { return ledger_.allocated_bytes(); }
  std::size_t peak_bytes() const override { return ledger_.peak_bytes(); }

  void* allocate_pinned(std::size_t size_bytes) override {
    void* memory = plain_.allocate(size_bytes);
    pinned_.add(memory, size_bytes);
    return memory;
  }
  void release_pinned(void* memory) override { plain_.release(memory, pinned_.remove(memory)); }

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override { copy(to, from, size_bytes); }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override { copy(to, from, size_bytes); }
  void copy_on(Stream& /*stream*/, void* to, const void* from, std::size_t size_bytes) override {
    copy(to, from, size_bytes);
  }
  void zero_on(Stream& /*stream*/, void* memory, std::size_t size_bytes) override {
    if (size_bytes > 0) std::memset(memory, 0, size_bytes);
  }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }

 private:
  static void copy(void* to, const void* from, std::size_t size_bytes) {
    if (size_bytes > 0) std::memcpy(to, from, size_bytes);  // copying 0 bytes may pass null, but not to memcpy
  }

  HostAllocator allocator_;
  MemoryLedger ledger_;
  HostAllocator plain_ = private_memory();
  MemoryLedger pinned_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(HostAllocator allocator) {
  return std::make_unique<CpuDevice>(std::move(allocator));
}

namespace {

void abandon_capture(Stream& stream) {
  try {
    stream.end_capture();
  } catch (const Error&) {
    // The error that work() threw is more specific than the error of the capture that it made fail.
  }
}

}  // namespace

std::unique_ptr<Graph> capture(Stream& stream, const std::function<void()>& work) {
  stream.begin_capture();
  try {
    work();
  } catch (...) {
    abandon_capture(stream);
    throw;
  }
  return stream.end_capture();
}

}  // namespace lockstep::core
