// Memory that is closed but while somebody holds it open: an access at any other time is a fault of the processor,
// which ends the test program.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <mutex>

#include "core/device_cpu.h"
#include "core/error.h"

namespace lockstep::trainer {

class GuardedPages {
 public:
  explicit GuardedPages(std::size_t size_bytes) : size_bytes_(size_bytes) {
    void* const pages = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCKSTEP_CHECK(pages != MAP_FAILED, "address space for guarded pages");
    pages_ = static_cast<std::byte*>(pages);
  }
  ~GuardedPages() { munmap(pages_, size_bytes_); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  core::HostAllocator allocator() {
    return {[this](std::size_t size_bytes) { return take(size_bytes); }, [](void*, std::size_t) {}};
  }

  // Open until what this returns is gone.
  std::shared_ptr<void> open() {
    count(1);
    return {this, [](GuardedPages* pages) { pages->count(-1); }};
  }

 private:
  // Handed out once.
  void* take(std::size_t size_bytes) {
    constexpr std::size_t kGrain = 128;
    const std::lock_guard lock(mutex_);
    std::byte* const memory = pages_ + taken_;
    taken_ += (size_bytes + kGrain - 1) / kGrain * kGrain;
    LOCKSTEP_CHECK(taken_ <= size_bytes_, "guarded pages that are enough");
    return memory;
  }
  void count(int more) {
    const std::lock_guard lock(mutex_);
    const bool was_open = open_ > 0;
    open_ += more;
    if (was_open == (open_ > 0)) return;
    const int access = open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    LOCKSTEP_CHECK(mprotect(pages_, size_bytes_, access) == 0, "guarded pages");
  }

  const std::size_t size_bytes_;
  std::byte* pages_ = nullptr;
  std::mutex mutex_;
  std::size_t taken_ = 0;
  int open_ = 0;
};

}  // namespace lockstep::trainer
