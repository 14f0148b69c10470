// A gate in a CUDA stream: work queued behind it begins when the host opens it. The time between two events is then the
// device's alone: without a gate, a short kernel ends before the host has queued the next one, so the events also time
// the host's launches (nvbench's blocking kernel, see its docs/benchmarks.md).
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {

// The device opens the gate by itself after `patience`, so that a host that waits for the device between close() and
// open() is delayed but not deadlocked: launches block when a stream holds about a thousand commands. The context must
// outlive it, and all queued work must be done before it is destroyed.
class StreamGate {
 public:
  explicit StreamGate(const CudaContext& cuda, std::chrono::nanoseconds patience = std::chrono::milliseconds(500));
  ~StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  void close();  // queues the gate
  void open();
  // True if the device opened the gate by itself since it was last closed. Call when the work behind it is done.
  bool lost_patience() const;

 private:
  struct Words;
  const CudaContext& cuda_;
  const std::uint64_t patience_ns_;
  Words* words_;  // page-locked
  std::uint64_t turn_ = 0;
};

}  // namespace lockstep::kernels
