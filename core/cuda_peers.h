// Lets kernels of one device reach memory of another device, and of another process on the same host.
#pragma once

#include <array>
#include <cstddef>

#include "core/cuda_call.h"

namespace lockstep::core {

// Lets kernels of `place`'s device read and write memory of device `peer` from now on. Throws Error(cuda) if the
// hardware cannot.
void allow_peer_access(CudaPlace place, int peer);

// Handle with which another process opens memory that a device's allocate_for_peers() returned; the driver shares whole
// allocations only.
using CudaIpcHandle = std::array<std::byte, 64>;
CudaIpcHandle ipc_handle_of(CudaPlace place, void* memory);

// Memory of another process, mapped during this object's lifetime; the other process must keep it as long.
class OpenedMemory {
 public:
  OpenedMemory(CudaPlace place, const CudaIpcHandle& handle);
  ~OpenedMemory();
  OpenedMemory(OpenedMemory&& other) noexcept;
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
  std::byte* data() const { return memory_; }

 private:
  std::byte* memory_ = nullptr;
};

}  // namespace lockstep::core
