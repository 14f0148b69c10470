// Tracks the blocks that a device has handed out, and the current and peak number of bytes.
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

}  // namespace lockstep::core
