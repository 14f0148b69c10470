// Storage for states of a store that are not on its device: host memory or a file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/device.h"

namespace lockstep::parallel {

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

}  // namespace lockstep::parallel
