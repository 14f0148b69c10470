// CUDA streams and events with deadlines, for device_cuda.cpp.
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
  // True after a wait timed out: kernels may hang.
  bool stuck = false;

  // Returns whether memory may be given back to CUDA. The calls that do so wait for kernels (cudaFree, cudaFreeHost).
  // If the device is stuck, or an exception is leaving its rank, they might wait for peers that wait for this rank, and
  // peers might still write to its memory. The end of the process frees it instead.
  bool frees() const;

  void activate() const;  // makes the device the calling thread's current one
};

class MemoryPool;

enum class StreamPriority { usual, highest };
// The stream tells `pool` when it is made, captured and destroyed.
std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool,
                                         StreamPriority priority = StreamPriority::usual);
// The legacy default stream, CUDA's NULL stream. All threads of a process share one per GPU, so that ranks that share a
// GPU need a single hardware queue for all of their copies. It does not synchronize with our streams, which are
// non-blocking (CUDA Runtime API, Stream synchronization behavior). Ranks that share a GPU must use it only for copies
// from and to page-locked memory, which never wait: the ranks' copies are done one after the other, and need no pool.
// It cannot be captured.
std::unique_ptr<Stream> default_cuda_stream(std::shared_ptr<CudaContext> context,
                                            std::shared_ptr<MemoryPool> pool = nullptr);
enum class EventTimes { yes, no };  // without times an event is cheaper, but us_since() fails
std::unique_ptr<Event> make_cuda_event(std::shared_ptr<CudaContext> context, EventTimes times = EventTimes::yes);

}  // namespace lockstep::core
