// CUDA GPUs as Devices. In builds without CUDA these functions exist and report that it is not built in.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_call.h"
#include "core/device.h"

namespace lockstep::core {

struct CudaDeviceInfo {
  int index;  // CUDA's number in this process (CUDA_VISIBLE_DEVICES renumbers)
  std::string name;
  std::size_t memory_bytes;
  std::string pci_id;                 // "0000:1b:00.0"
  std::array<std::uint8_t, 16> uuid;  // universally unique identifier of the GPU or its MIG slice
  int compute_capability;             // 90 for 9.0
  int num_multiprocessors;
  double clock_mhz = 0;      // highest clock of its multiprocessors; 0 if unknown
  std::size_t l2_bytes = 0;  // size of its L2 cache; 0 if unknown
  std::optional<bool> shared_by_mps = std::nullopt;
};

// Says why no CUDA device can be used here: not built in, no driver, no GPU. nullopt if there is at least one.
std::optional<std::string> why_no_cuda();

// "13.0": the newest CUDA version that the driver supports, and the one that was built in; empty without CUDA.
struct CudaVersions {
  std::string driver;
  std::string runtime;
};
CudaVersions cuda_versions();

// All CUDA devices that this process sees; empty if why_no_cuda() returns a reason.
std::vector<CudaDeviceInfo> cuda_devices();

// Free bytes of a device's memory; other programs may allocate them, too.
std::size_t cuda_free_bytes(int index);

// Makes a high-priority stream of a CUDA device: its blocks are scheduled before blocks of the device's other streams.
// For collectives, which wait for other ranks while kernels compute.
std::unique_ptr<Stream> make_urgent_stream(Device& device);

// CUDA's legacy NULL stream of the device. A process has one per device: the work of all threads that use it is done in
// one order. It cannot be captured.
std::unique_ptr<Stream> make_null_stream(Device& device);

// Waits on the device give up after `timeout`. Errors name the call, the rank, the device and CUDA's text. Throws
// Error(not_built) or Error(cuda) if why_no_cuda() returns a reason, and Error(usage) if there is no device with that
// index.
std::unique_ptr<Device> make_cuda_device(int index, int rank,
                                         std::chrono::nanoseconds timeout = std::chrono::seconds(60));

// Lets kernels of one device reach memory of another device, and of another process on the same host.

// Lets kernels of `caller`'s device read and write memory of device `peer` from now on. Throws Error(cuda) if the
// hardware cannot.
void allow_peer_access(CudaCaller caller, int peer);

// Handle with which another process opens memory that a device's allocate_for_peers() returned; the driver shares whole
// allocations only.
using CudaIpcHandle = std::array<std::byte, 64>;
CudaIpcHandle ipc_handle_of(CudaCaller caller, void* memory);

// Memory of another process, mapped during this object's lifetime; the other process must keep it as long.
class OpenedMemory {
 public:
  OpenedMemory(CudaCaller caller, const CudaIpcHandle& handle);
  ~OpenedMemory();
  OpenedMemory(OpenedMemory&& other) noexcept;
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
  std::byte* data() const { return memory_; }

 private:
  std::byte* memory_ = nullptr;
};

// Named ranges on the time line of a profiler (Nsight Systems, by NVTX). Without a profiler a range costs a few
// nanoseconds; in builds without CUDA it does nothing.

bool trace_ranges_built();  // true if ScopedRange does anything

// A range of this thread from construction to destruction; ranges nest.
class ScopedRange {
 public:
  explicit ScopedRange(const char* name);
  ~ScopedRange();
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;
};

}  // namespace lockstep::core
