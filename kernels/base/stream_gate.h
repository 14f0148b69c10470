// A gate in a CUDA stream: what is queued behind it begins when the host says so. With it, the time between two events
// is the device's alone: without it a short kernel is over before the host has queued the next, and the events also
// time the host's launches (nvbench's blocking kernel, docs/benchmarks.md there).
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {

// The device opens the gate by itself after `patience`, so that a host that waits for the device between close() and
// open() is late and not stuck: launches wait when a stream holds about a thousand commands. The context outlives it,
// and all that was queued is done before it goes.
class StreamGate {
 public:
  explicit StreamGate(const CudaContext& cuda, std::chrono::nanoseconds patience = std::chrono::milliseconds(500));
  ~StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  void close();  // queues it
  void open();
  // Whether the device has opened it by itself since it was last closed. Once what follows it is done.
  bool lost_patience() const;

 private:
  struct Words;
  const CudaContext& cuda_;
  const std::uint64_t patience_ns_;
  Words* words_;  // page-locked
  std::uint64_t turn_ = 0;
};

}  // namespace lockstep::kernels
