#include "parallel/parameters/device_memory.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "core/async_file.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "workload/memory_kinds.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kPage = 4096;  // bytes

void copy_in(core::Device& device, void* to, const void* from, std::size_t size_bytes) {
  if (device.is_host_memory()) {
    std::memcpy(to, from, size_bytes);
  } else {
    device.copy_to_device(to, from, size_bytes);
  }
}

template <class Narrow, class Round>
void write_narrow(core::Device& device, void* to, std::span<const float> values, Round round) {
  std::vector<Narrow> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), round);
  copy_in(device, to, rounded.data(), rounded.size() * sizeof(Narrow));
}

}  // namespace

void finish(const kernels::Context& where) {
  if (core::Stream* const queue = queue_of(where); queue != nullptr) queue->synchronize();
}

void set_zero(core::Device& device, const kernels::Context& where, const kernels::Out& what) {
  const auto size_bytes = static_cast<std::int64_t>(kernels::size_bytes(what.dtype, what.elems));
  auto* const bytes = what.as<std::byte>();
  if (device.is_host_memory()) {
    where.pool().for_ranges(size_bytes, kPage, [bytes](std::int64_t begin, std::int64_t end) {
      std::memset(bytes + begin, 0, static_cast<std::size_t>(end - begin));
    });
    return;
  }
  if (core::Stream* const queue = queue_of(where); queue != nullptr) {
    device.zero_on(*queue, bytes, static_cast<std::size_t>(size_bytes));
    return;
  }
  const std::vector<std::byte> zeros(std::size_t{1} << 20);
  const auto piece = static_cast<std::int64_t>(zeros.size());
  for (std::int64_t begin = 0; begin < size_bytes; begin += piece) {
    device.copy_to_device(bytes + begin, zeros.data(), static_cast<std::size_t>(std::min(piece, size_bytes - begin)));
  }
}

Tensor make_zeroed(Memory& memory, const kernels::Context& where, MemoryKind kind, core::DType dtype,
                   std::int64_t elems) {
  Tensor tensor = memory.make(kind, dtype, elems);
  if (tensor.given()) set_zero(memory.device(), where, tensor.out());
  return tensor;
}

void write_rounded(core::Device& device, const kernels::Out& to, std::span<const float> values) {
  switch (to.dtype) {
    case core::DType::f32:
      return copy_in(device, to.data, values.data(), values.size_bytes());
    case core::DType::bf16:
      return write_narrow<core::BFloat16>(device, to.data, values, core::to_bfloat16);
    case core::DType::f16:
      return write_narrow<core::Float16>(device, to.data, values, core::to_float16);
    default:
      LOCKSTEP_CHECK(false, "weights are f32, bf16 or f16");
  }
}

void queue_to_device(core::Device& device, const kernels::Context& where, const kernels::Out& to, const void* host) {
  const std::size_t size_bytes = kernels::size_bytes(to.dtype, to.elems);
  core::Stream* const queue = queue_of(where);
  if (queue == nullptr) return device.copy_to_device(to.data, host, size_bytes);
  device.copy_on(*queue, to.data, host, size_bytes);
}

void queue_to_host(core::Device& device, const kernels::Context& where, void* host, const kernels::In& from) {
  const std::size_t size_bytes = kernels::size_bytes(from.dtype, from.elems);
  core::Stream* const queue = queue_of(where);
  if (queue == nullptr) return device.copy_to_host(host, from.data, size_bytes);
  device.copy_on(*queue, host, from.data, size_bytes);
}

Tensor make_scalar(Memory& memory, const kernels::Context& where, float value) {
  Tensor scalar = memory.make(MemoryKind::buffers, core::DType::f32, 1);
  finish(where);  // queued work may still use the memory
  copy_in(memory.device(), scalar.data(), &value, sizeof value);
  return scalar;
}

namespace {

static_assert(workload::OffloadStaging::kAlign % core::AsyncFile::kAlign == 0);

// Synchronous copies, which cannot overlap with kernels of the same thread.
class HostRoom final : public StateRoom {
 public:
  HostRoom(core::Device& device, std::int64_t bytes)
      : device_(device), memory_(device, static_cast<std::size_t>(bytes)) {}

  bool in_blocks() const override { return false; }
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes) override {
    device_.copy_to_device(to, host_memory() + offset, static_cast<std::size_t>(bytes));
    return 0;
  }
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) override {
    device_.copy_to_host(host_memory() + offset, from, static_cast<std::size_t>(bytes));
    return 0;
  }
  void wait(Ticket /*ticket*/) override {}
  std::byte* host_memory() override { return memory_.as<std::byte>(); }

 private:
  core::Device& device_;
  core::PinnedMemory memory_;
};

// For a device with queued work: copies have a stream of their own and overlap with kernels. wait() makes the kernels'
// stream wait for a copy, and a copy off the device waits for the kernels before it; the host does not wait.
class QueuedRoom final : public StateRoom {
 public:
  QueuedRoom(core::Device& device, core::Stream& kernels, std::int64_t bytes)
      : device_(device),
        kernels_(kernels),
        copies_(device.make_stream()),
        kernels_so_far_(device.make_event()),
        memory_(device, static_cast<std::size_t>(bytes)) {
    for (auto& event : ends_) event = device.make_event();
  }
  ~QueuedRoom() override {
    try {
      copies_->synchronize();
    } catch (const core::Error&) {
      // The device has failed before and has reported it.
    }
  }
  QueuedRoom(const QueuedRoom&) = delete;
  QueuedRoom& operator=(const QueuedRoom&) = delete;

  bool in_blocks() const override { return false; }
  // Stream order lets a staging buffer be refilled after its last copy off the device; before the first one, kernels
  // may still use it.
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes) override {
    if (tickets_ == 0) wait_for_kernels();
    device_.copy_on(*copies_, to, memory_.as<std::byte>() + offset, static_cast<std::size_t>(bytes));
    return end_of_copy();
  }
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) override {
    wait_for_kernels();
    device_.copy_on(*copies_, memory_.as<std::byte>() + offset, from, static_cast<std::size_t>(bytes));
    return end_of_copy();
  }
  void wait(Ticket ticket) override { kernels_.wait(*ends_[ticket % ends_.size()]); }

 private:
  void wait_for_kernels() {
    kernels_so_far_->record(kernels_);
    copies_->wait(*kernels_so_far_);
  }
  Ticket end_of_copy() {
    ends_[tickets_ % ends_.size()]->record(*copies_);
    return tickets_++;
  }

  core::Device& device_;
  core::Stream& kernels_;
  std::unique_ptr<core::Stream> copies_;
  std::unique_ptr<core::Event> kernels_so_far_;
  std::array<std::unique_ptr<core::Event>, 16> ends_;  // ends of the latest copies; an update waits for fewer
  Ticket tickets_ = 0;
  core::PinnedMemory memory_;
};

class FileRoom final : public StateRoom {
 public:
  explicit FileRoom(const core::AsyncFile::Options& options) : file_(options) {}

  bool in_blocks() const override { return true; }
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes) override { return file_.read(offset, to, bytes); }
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) override {
    return file_.write(offset, from, bytes);
  }
  void wait(Ticket ticket) override { file_.wait(ticket); }

 private:
  core::AsyncFile file_;
};

}  // namespace

MakeStateRoom rooms_of_host(core::Device& device, core::Stream* kernels) {
  return [&device, kernels](std::int64_t bytes) -> std::unique_ptr<StateRoom> {
    if (kernels != nullptr) return std::make_unique<QueuedRoom>(device, *kernels, bytes);
    return std::make_unique<HostRoom>(device, bytes);
  };
}

MakeStateRoom rooms_in_files(const std::string& folder, std::chrono::milliseconds timeout) {
  return [folder, timeout](std::int64_t bytes) {
    return std::make_unique<FileRoom>(core::AsyncFile::Options{.folder = folder, .bytes = bytes, .timeout = timeout});
  };
}

}  // namespace lockstep::parallel
