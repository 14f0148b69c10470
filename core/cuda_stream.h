// CUDA streams and events with deadlines: what device_cuda.cpp makes.
#pragma once

#include <chrono>
#include <memory>

#include "core/cuda_call.h"
#include "core/device.h"

namespace lockstep::core {

// State that a CUDA device, its streams and its events share.
struct CudaContext {
  CudaPlace place;
  std::chrono::nanoseconds timeout;
  // A wait ran out of time: kernels may hang.
  bool stuck = false;

  // Whether to give something back to CUDA. Calls that do wait for kernels (cudaFree, cudaFreeHost), and where this is
  // stuck, or an exception is leaving its rank, these may wait for peers that wait for this rank; those may also still
  // write to its memory. The end of the process frees it.
  bool frees() const;

  void activate() const;  // makes the device the calling thread's current one
};

class MemoryPool;

enum class StreamPriority { usual, highest };
// `pool` is told when the stream comes, is captured, and goes.
std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool,
                                         StreamPriority priority = StreamPriority::usual);
// The legacy default stream: one of a GPU for all threads of a process, so that ranks that share a GPU need a single
// hardware queue for all of their copies. It and ours, which do not block, wait for no other (CUDA Runtime API, Stream
// synchronization behavior). For copies from and to page-locked memory alone, which wait for nobody: ranks' copies are
// done one after the other. Not to be captured.
std::unique_ptr<Stream> default_cuda_stream(std::shared_ptr<CudaContext> context);
enum class EventTimes { yes, no };  // without times an event is cheaper, and us_since() fails
std::unique_ptr<Event> make_cuda_event(std::shared_ptr<CudaContext> context, EventTimes times = EventTimes::yes);

}  // namespace lockstep::core
