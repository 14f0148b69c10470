// Where a store keeps states that are not on its device: in the host's memory, or in a file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/device.h"

namespace lockstep::parallel {

// One thread at a time. Offsets, sizes and addresses are multiples of workload::OffloadStaging::kAlign bytes, where
// in_blocks() says that they have to be.
class StateRoom {
 public:
  virtual ~StateRoom() = default;
  virtual bool in_blocks() const = 0;
  using Ticket = std::uint64_t;
  // Begun; the memory belongs to the room until wait(), which throws an Error where it failed. Where work is queued,
  // wait() is in the order of the kernels.
  virtual Ticket read(std::int64_t offset, void* to, std::int64_t bytes) = 0;
  virtual Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) = 0;
  virtual void wait(Ticket ticket) = 0;
  // Where kernels of the host may work on it in place; nullptr: nowhere.
  virtual std::byte* host_memory() { return nullptr; }
};

// Makes a room of so many bytes. Empty: there is none.
using MakeStateRoom = std::function<std::unique_ptr<StateRoom>(std::int64_t bytes)>;

// Page-locked memory of the device's host; the device outlives the rooms. `kernels`: the stream whose kernels use what
// is copied, where work is queued; nullptr: copies are done when they return.
MakeStateRoom rooms_of_host(core::Device& device, core::Stream* kernels = nullptr);
// A file without a name in the folder, which is read and written beside the caller (core/async_file.h).
MakeStateRoom rooms_in_files(const std::string& folder, std::chrono::milliseconds timeout);

}  // namespace lockstep::parallel
