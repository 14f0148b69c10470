#include "core/device_cpu.h"

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/memory_ledger.h"
#include "core/wait.h"

namespace lockstep::core {
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

}  // namespace lockstep::core
