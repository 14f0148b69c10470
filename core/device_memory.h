// A piece of a device's memory that is released by its owner's destructor. The device must outlive it.
#pragma once

#include <cstddef>
#include <utility>

#include "core/device.h"
#include "core/error.h"

namespace lockstep::core {

class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(Device& device, std::size_t size_bytes)
      : device_(&device), memory_(static_cast<std::byte*>(device.allocate(size_bytes))) {}
  // Allocates memory that other processes may open.
  static DeviceBlock for_peers(Device& device, std::size_t size_bytes) {
    DeviceBlock block;
    block.memory_ = static_cast<std::byte*>(device.allocate_for_peers(size_bytes));
    block.device_ = &device;
    return block;
  }
  DeviceBlock(DeviceBlock&& other) noexcept { swap(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  ~DeviceBlock() {
    if (memory_ != nullptr) device_->release(memory_);
  }
  std::byte* data() const { return memory_; }

 private:
  void swap(DeviceBlock& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
  }
  Device* device_ = nullptr;
  std::byte* memory_ = nullptr;
};

// Page-locked host memory, released by its owner's destructor, for copies queued on a stream.

class PinnedMemory {
 public:
  PinnedMemory() = default;
  // The device must outlive it. No queued work may use it when it is destroyed.
  PinnedMemory(Device& device, std::size_t size_bytes) : device_(&device), data_(device.allocate_pinned(size_bytes)) {}
  PinnedMemory(PinnedMemory&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() {
    try {
      if (data_ != nullptr) device_->release_pinned(data_);
    } catch (const Error&) {
      // The device failed before; its memory is freed with the process.
    }
  }

  bool given() const { return data_ != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace lockstep::core
