// A device for tests that claims that its memory is not the host's, and is otherwise the CPU. Tests override what they
// want to observe or change.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "core/device.h"

namespace lockstep::core {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> cpu = make_cpu_device()) : cpu_(std::move(cpu)) {}

  std::string name() const override { return "not the host's"; }
  int index() const override { return 0; }
  bool is_host_memory() const override { return false; }

  void* allocate(std::size_t size_bytes) override { return cpu_->allocate(size_bytes); }
  void release(void* memory) override { cpu_->release(memory); }
  std::size_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  std::size_t peak_bytes() const override { return cpu_->peak_bytes(); }
  void* allocate_pinned(std::size_t size_bytes) override { return cpu_->allocate_pinned(size_bytes); }
  void release_pinned(void* memory) override { cpu_->release_pinned(memory); }

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    cpu_->copy_to_device(to, from, size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    cpu_->copy_to_host(to, from, size_bytes);
  }
  void copy_on(Stream& stream, void* to, const void* from, std::size_t size_bytes) override {
    cpu_->copy_on(stream, to, from, size_bytes);
  }
  void zero_on(Stream& stream, void* memory, std::size_t size_bytes) override {
    cpu_->zero_on(stream, memory, size_bytes);
  }

  std::unique_ptr<Stream> make_stream() override { return cpu_->make_stream(); }
  std::unique_ptr<Event> make_event() override { return cpu_->make_event(); }

 protected:
  Device& cpu() { return *cpu_; }

 private:
  const std::unique_ptr<Device> cpu_;
};

}  // namespace lockstep::core
