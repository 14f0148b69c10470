// Tools to time kernels on a CUDA device: a gate that holds a stream's work until the host opens it, and loops that do
// nothing but move the memory of the device, for the ceilings that kernels are held against.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {

// A gate in a CUDA stream: work queued after it begins when the host opens it. The time between two events is then the
// device's alone: without a gate, a short kernel ends before the host has queued the next one, so the events also time
// the host's launches (nvbench's blocking kernel, see its docs/benchmarks.md).
//
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
  // True if the device opened the gate by itself since it was last closed. Call when the work after it is done.
  bool lost_patience() const;

 private:
  struct Words;
  const CudaContext& cuda_;
  const std::uint64_t patience_ns_;
  Words* words_;  // page-locked
  std::uint64_t turn_ = 0;
};

// Loops over the device's memory: a sum, which only reads, and STREAM's triad, which reads two bytes for each that it
// writes (McCalpin 1995, STREAM). A copy is copy_on_device() (cuda_context.h).
//
// Both take arrays of f32 in the device's memory, which begin at a multiple of 16 bytes and have a multiple of 4
// elements.

// Blocks of read_on_device(): each writes the sum of the elements that it has read, so that no load can be left out.
std::int64_t read_blocks(const CudaContext& cuda, std::int64_t count);
// sums: [read_blocks()]
void read_on_device(CudaContext& cuda, const float* from, std::int64_t count, float* sums);

// to[i] = a[i] + factor * b[i]
void triad_on_device(CudaContext& cuda, const float* a, const float* b, float factor, float* to, std::int64_t count);

}  // namespace lockstep::kernels
