// Which blocks a device has handed out, and how many bytes that is now and was at most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include "core/error.h"

namespace lockstep::core {

class MemoryLedger {
 public:
  void add(void* memory, std::size_t size_bytes) {
    blocks_.emplace(memory, size_bytes);
    allocated_bytes_ += size_bytes;
    peak_bytes_ = std::max(peak_bytes_, allocated_bytes_);
  }

  // Forgets a block and returns its size. A block that is not there is a bug of ours.
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

}  // namespace lockstep::core
