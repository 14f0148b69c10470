// A device whose memory the host may not touch but by copies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "core/forwarding_device_for_tests.h"

namespace lockstep::parallel {

class DistantDevice final : public core::ForwardingDevice {
 public:
  // The result of `open` is kept during each copy: for memory that is closed to everything else.
  using Open = std::function<std::shared_ptr<void>()>;
  explicit DistantDevice(
      std::unique_ptr<core::Device> cpu = core::make_cpu_device(), Open open = [] { return nullptr; })
      : ForwardingDevice(std::move(cpu)), open_(std::move(open)) {}

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    const std::shared_ptr<void> opened = open_();
    ForwardingDevice::copy_to_device(to, from, size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    const std::shared_ptr<void> opened = open_();
    ForwardingDevice::copy_to_host(to, from, size_bytes);
  }

 private:
  const Open open_;
};

}  // namespace lockstep::parallel
