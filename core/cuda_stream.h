// CUDA streams and events with deadlines, for device_cuda.cpp.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "core/cuda_call.h"
#include "core/device.h"
#include "core/memory_pool.h"

namespace lockstep::core {

// State that a CUDA device, its streams and its events share.
struct CudaContext {
  CudaCaller caller;
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
// The stream reports to `pool` when it is created, captured and destroyed.
std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaContext> context, std::shared_ptr<MemoryPool> pool,
                                         StreamPriority priority = StreamPriority::usual);
// The legacy default stream, CUDA's NULL stream. All threads of a process share one per GPU, so that ranks that share a
// GPU need a single hardware queue for all of their copies. It does not synchronize with our streams, which are
// non-blocking (CUDA Runtime API, Stream synchronization behavior). Ranks that share a GPU must use it only for copies
// from and to page-locked memory, which never wait: the ranks' copies run in turn, and need no pool. It cannot be
// captured.
std::unique_ptr<Stream> default_cuda_stream(std::shared_ptr<CudaContext> context,
                                            std::shared_ptr<MemoryPool> pool = nullptr);
enum class EventTimes { yes, no };  // without times an event is cheaper, but us_since() fails
std::unique_ptr<Event> make_cuda_event(std::shared_ptr<CudaContext> context, EventTimes times = EventTimes::yes);

// A Graph made from what CUDA recorded on a captured stream.

class CudaGraph final : public Graph {
 public:
  struct Parts {
    std::shared_ptr<CudaContext> context;
    std::shared_ptr<MemoryPool> pool;
    MemoryPool::Kept kept;  // given back to the pool by the destructor
    void* graph;            // cudaGraph_t, owned; nullptr if the capture failed
  };
  explicit CudaGraph(Parts parts);
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override;

  void instantiate(Stream& stream);  // call once, before the first launch, with the stream that will probably launch it
  void launch(Stream& stream) override;

 private:
  Parts parts_;
  void* executable_ = nullptr;  // cudaGraphExec_t
};

// Copies between any host memory and a CUDA device through two pinned blocks in turn: the CPU fills one while the GPU
// empties the other.

class CudaStaging {
 public:
  explicit CudaStaging(std::shared_ptr<CudaContext> context);
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void to_device(std::byte* to, const std::byte* from, std::size_t size_bytes);  // both copies are complete on return
  void to_host(std::byte* to, const std::byte* from, std::size_t size_bytes);

 private:
  struct Block {
    std::byte* memory = nullptr;  // pinned
    std::unique_ptr<Event> free;  // passed when the GPU's copy from or to it is done
  };
  // A piece in a block on its way from the device.
  struct Piece {
    std::byte* to = nullptr;
    std::size_t size_bytes = 0;
  };
  void land(Block& block, Piece& piece);
  void copy_async(void* to, const void* from, std::size_t size_bytes);

  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<Stream> stream_;  // the default stream, which all ranks of a process on a GPU share
  std::array<Block, 2> blocks_;
};

}  // namespace lockstep::core
