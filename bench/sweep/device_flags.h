// nccl-tests' flags that have a meaning on GPUs only, and which transport understands which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends/backend.h"

namespace lockstep::sweep {

// What the host waits for within a batch of calls (-z).
enum class Blocking : std::uint8_t {
  none,              // the end of the batch
  call_and_barrier,  // every call, and then for the other ranks
  call,
  iteration,  // every iteration; then for the other ranks, outside of the time
};

struct DeviceFlags {
  int graph_launches = 0;        // -G: iterations are captured into a CUDA graph, replayed so many times; 0: none
  bool report_cpu_time = false;  // -C: the time column is the host's, spent with queueing
  Blocking blocking = Blocking::none;
  int registration = 0;           // -R: buffers are made known to NCCL: 1 local, 2 symmetric windows
  std::string protocol = "auto";  // of the cuda transport: auto, simple, packets
  int blocks = 0;                 // --blocks: the most thread blocks of a rank's collective; 0: as places.h counts
};

// By the table of backends; false for a transport that is none, "simulated".
inline bool on_gpus(std::string_view transport) {
  return backends::is_backend(transport) && backends::find_backend(transport).on_gpus();
}

// Throws a usage Error: one line that names the flag, the transport that cannot do it, and why.
void check_device_flags(const DeviceFlags& flags, const std::vector<std::string>& transports);

}  // namespace lockstep::sweep
