// Memory of ranks that fail is kept until all ranks have ended, as peers may be reading it, or a message may be writing
// to it.
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device_cpu.h"
#include "core/gate.h"

namespace lockstep::backends {

class LastingMemory {
 public:
  explicit LastingMemory(const core::AbortFlag& abort) : abort_(abort) {}
  ~LastingMemory() {
    for (const auto& [memory, size_bytes] : kept_) private_.release(memory, size_bytes);
  }
  LastingMemory(const LastingMemory&) = delete;
  LastingMemory& operator=(const LastingMemory&) = delete;

  core::HostAllocator allocator() {
    return {private_.allocate, [this](void* memory, std::size_t size_bytes) { release(memory, size_bytes); }};
  }

 private:
  void release(void* memory, std::size_t size_bytes) {
    if (!abort_.raised() && std::uncaught_exceptions() == 0) return private_.release(memory, size_bytes);
    const std::lock_guard lock(mutex_);
    kept_.emplace_back(memory, size_bytes);
  }

  const core::AbortFlag& abort_;
  const core::HostAllocator private_ = core::private_memory();
  std::mutex mutex_;
  std::vector<std::pair<void*, std::size_t>> kept_;
};

}  // namespace lockstep::backends
