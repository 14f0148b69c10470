// The CPU as a Device: memory from an allocator of the caller's choice, events from the steady clock, empty streams.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/device.h"

namespace lockstep::core {

// Where the memory of a CPU device comes from: private memory, or a region that ranks share.
struct HostAllocator {
  std::function<void*(std::size_t size_bytes)>
      allocate;  // 128-byte aligned; throws Error if there is not enough memory
  std::function<void(void* memory, std::size_t size_bytes)> release;
};

// Allocates zeroed memory of this process. Blocks of at least 4 MiB begin on a 2 MiB boundary and request huge pages.
HostAllocator private_memory();

// Bytes that the system could still hand out: the minimum of free memory and the limits of our control groups.
std::size_t available_host_bytes();

std::unique_ptr<Device> make_cpu_device(HostAllocator allocator = private_memory());

}  // namespace lockstep::core
