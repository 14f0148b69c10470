// A device whose memory the host may not touch but by copies: the CPU's, which says so.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/device.h"
#include "core/device_cpu.h"

namespace lockstep::parallel {

class DistantDevice final : public core::Device {
 public:
  // What `open` returns is kept for the time of each copy: for memory that is closed to all others.
  using Open = std::function<std::shared_ptr<void>()>;
  explicit DistantDevice(
      std::unique_ptr<core::Device> cpu = core::make_cpu_device(), Open open = [] { return nullptr; })
      : cpu_(std::move(cpu)), open_(std::move(open)) {}

  std::string name() const override { return "distant"; }
  int index() const override { return 0; }
  bool is_host_memory() const override { return false; }

  void* allocate(std::size_t size_bytes) override { return cpu_->allocate(size_bytes); }
  void release(void* memory) override { cpu_->release(memory); }
  std::size_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  std::size_t peak_bytes() const override { return cpu_->peak_bytes(); }

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    const std::shared_ptr<void> opened = open_();
    cpu_->copy_to_device(to, from, size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    const std::shared_ptr<void> opened = open_();
    cpu_->copy_to_host(to, from, size_bytes);
  }
  void* allocate_pinned(std::size_t size_bytes) override { return cpu_->allocate_pinned(size_bytes); }
  void release_pinned(void* memory) override { cpu_->release_pinned(memory); }
  void copy_on(core::Stream& stream, void* to, const void* from, std::size_t size_bytes) override {
    cpu_->copy_on(stream, to, from, size_bytes);
  }
  void zero_on(core::Stream& stream, void* memory, std::size_t size_bytes) override {
    cpu_->zero_on(stream, memory, size_bytes);
  }

  std::unique_ptr<core::Stream> make_stream() override { return cpu_->make_stream(); }
  std::unique_ptr<core::Event> make_event() override { return cpu_->make_event(); }

 private:
  const std::unique_ptr<core::Device> cpu_;
  const Open open_;
};

}  // namespace lockstep::parallel
