// Memory of a parameter store: on the device, staged through the host, or away from both.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "workload/memory_kinds.h"

namespace lockstep::parallel {

// Access to device memory from the host, in order with the kernels of a context.

// The stream in which the context's kernels are queued; nullptr on the CPU, where kernels are synchronous.
core::Stream* queue_of(const kernels::Context& where);

// Returns once all kernels of the context are done.
void finish(const kernels::Context& where);

// Sets to zero in order with the context's kernels.
void set_zero(core::Device& device, const kernels::Context& where, const kernels::Out& what);
Tensor make_zeroed(Memory& memory, const kernels::Context& where, MemoryKind kind, core::DType dtype,
                   std::int64_t elems);

// to = values, rounded to its dtype (f32, bf16, f16) to nearest even. No kernel may use `to` meanwhile. Any thread may
// call it if the memory is host memory.
void write_rounded(core::Device& device, const kernels::Out& to, std::span<const float> values);

// Copies in order with the context's kernels. If those are queued, the copies are queued as well, and `host` must be
// page-locked memory (core/device.h) that is not touched until they are done.
void queue_to_device(core::Device& device, const kernels::Context& where, const kernels::Out& to, const void* host);
void queue_to_host(core::Device& device, const kernels::Context& where, void* host, const kernels::In& from);

// A number in device memory.
Tensor make_scalar(Memory& memory, const kernels::Context& where, float value);

// Storage for states of a store that are not on its device: host memory or a file.

// For one thread at a time. Offsets, sizes and addresses must be multiples of workload::OffloadStaging::kAlign bytes if
// in_blocks() returns true.
class StateRoom {
 public:
  virtual ~StateRoom() = default;
  virtual bool in_blocks() const = 0;
  using Ticket = std::uint64_t;
  // Begin a copy; the memory belongs to the room until wait(), which throws an Error if the copy failed. If work is
  // queued, wait() is in order with the kernels.
  virtual Ticket read(std::int64_t offset, void* to, std::int64_t bytes) = 0;
  virtual Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) = 0;
  virtual void wait(Ticket ticket) = 0;
  // Memory on which host kernels may work in place; nullptr: none.
  virtual std::byte* host_memory() { return nullptr; }
};

// Makes a room of this many bytes. Empty: no room is available.
using MakeStateRoom = std::function<std::unique_ptr<StateRoom>(std::int64_t bytes)>;

// Page-locked host memory of the device, which must outlive the rooms. `kernels`: the stream whose kernels use the
// copied data, if work is queued; nullptr: copies are synchronous.
MakeStateRoom rooms_of_host(core::Device& device, core::Stream* kernels = nullptr);
// A file without a name in the folder, read and written asynchronously (core/async_file.h).
MakeStateRoom rooms_in_files(const std::string& folder, std::chrono::milliseconds timeout);

// The first address of whole blocks from `memory` on.
inline std::byte* aligned(void* memory) {
  constexpr auto kAlign = static_cast<std::uintptr_t>(workload::OffloadStaging::kAlign);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return static_cast<std::byte*>(memory) + ((address + kAlign - 1) / kAlign * kAlign - address);
}

// A tensor that a StateRoom copies from and to: whole blocks from an aligned address on.

struct StagedTensor {
  Tensor memory = {};
  void* data = nullptr;  // within the tensor
  std::int64_t elems = 0;

  bool given() const { return memory.given(); }
  void reset() {
    memory.reset();
    *this = {};
  }
  kernels::In in() const { return {data, memory.dtype(), elems}; }
  kernels::Out out() const { return {data, memory.dtype(), elems}; }
  kernels::InOut inout() const { return {data, memory.dtype(), elems}; }
};

// A tensor that is never copied that way.
inline StagedTensor unaligned(Tensor tensor) {
  StagedTensor staged{.memory = std::move(tensor)};
  staged.data = staged.memory.data();
  staged.elems = staged.memory.elems();
  return staged;
}

inline StagedTensor make_staged(Memory& memory, MemoryKind kind, core::DType dtype, std::int64_t elems) {
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(dtype));
  StagedTensor staged{
      .memory = memory.make(kind, dtype, workload::OffloadStaging::staged_bytes(elem_bytes * elems) / elem_bytes),
      .elems = elems};
  staged.data = aligned(staged.memory.data());
  return staged;
}

}  // namespace lockstep::parallel
