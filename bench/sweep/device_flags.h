// nccl-tests' flags that have a meaning on GPUs only, and the transports that understand them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends/backend.h"

namespace lockstep::sweep {

// Points at which the host waits within a batch of calls (-z).
enum class Blocking : std::uint8_t {
  none,              // after the batch
  call_and_barrier,  // after every call, and then for the other ranks
  call,
  iteration,  // after every iteration; then for the other ranks, outside of the timed part
};

struct DeviceFlags {
  // -G: iterations are captured into a CUDA graph, and the graph is replayed this often; 0: no graph
  int graph_launches = 0;
  bool report_cpu_time = false;  // -C: the time column is the host's time to enqueue a call
  Blocking blocking = Blocking::none;
  int registration = 0;           // -R: buffers are registered with NCCL: 1 locally, 2 as symmetric windows
  std::string protocol = "auto";  // transport cuda: auto, simple or packets
  int blocks = 0;                 // --blocks: most thread blocks per rank and collective; 0: the default of places.h
  bool reports_memory = false;    // -M: report the GPU memory that joining, buffers and calls take
  bool null_stream = false;       // -y: enqueue calls on CUDA's NULL stream
  libraries::NcclConfig nccl;     // -x, --min-ctas, --max-ctas, --cga-cluster-size, --net, --split-share
};

// True if the table of backends says so; false for "simulated", which is no backend.
inline bool on_gpus(std::string_view transport) {
  return backends::is_backend(transport) && backends::find_backend(transport).on_gpus();
}

// Throws a usage Error of one line that names the flag, the transport that does not support it, and the reason.
void check_device_flags(const DeviceFlags& flags, const std::vector<std::string>& transports);

}  // namespace lockstep::sweep
