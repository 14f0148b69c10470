// CUDA GPUs as Devices. Built without CUDA, these functions are there and say so.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"

namespace lockstep::core {

struct CudaDeviceInfo {
  int index;  // CUDA's number in this process (CUDA_VISIBLE_DEVICES renumbers)
  std::string name;
  std::size_t memory_bytes;
  std::string pci_id;                 // "0000:1b:00.0"
  std::array<std::uint8_t, 16> uuid;  // of the GPU or its MIG slice, in the whole world
  int compute_capability;             // 90 for 9.0
  int num_multiprocessors;
  double clock_mhz = 0;      // the highest of its multiprocessors; 0 where it is not told
  std::size_t l2_bytes = 0;  // of its second-level cache; 0 where it is not told
  std::optional<bool> shared_by_mps = std::nullopt;
};

// Why no CUDA device can be used here: not built in, no driver, no GPU. Nothing if there is at least one.
std::optional<std::string> why_no_cuda();

// "13.0": the newest CUDA that the driver can run, and the one built in; empty without CUDA.
struct CudaVersions {
  std::string driver;
  std::string runtime;
};
CudaVersions cuda_versions();

// All CUDA devices that this process sees; none where why_no_cuda() has something to say.
std::vector<CudaDeviceInfo> cuda_devices();

// Free bytes of a device's memory, of which other programs may have some.
std::size_t cuda_free_bytes(int index);

// Whether kernels of device `from` can read and write memory of device `to` directly.
bool cuda_can_reach(int from, int to);

// A stream of a CUDA device whose kernels' blocks get free places before those of the device's other streams: for
// collectives, which wait for those of other ranks, beside kernels that compute.
std::unique_ptr<Stream> make_urgent_stream(Device& device);

// Waits give up after `timeout`. Errors name the call, the rank, the device and CUDA's text. Throws Error(not_built)
// or Error(cuda) where why_no_cuda() has something to say, Error(usage) if there is no device of that index.
std::unique_ptr<Device> make_cuda_device(int index, int rank,
                                         std::chrono::nanoseconds timeout = std::chrono::seconds(60));

}  // namespace lockstep::core
