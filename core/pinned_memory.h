// Page-locked host memory, released by its owner's destructor, for copies queued on a stream.
#pragma once

#include <cstddef>
#include <utility>

#include "core/device.h"
#include "core/error.h"

namespace lockstep::core {

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
