// What CUDA has recorded from a captured stream, as a Graph.
#pragma once

#include <memory>

#include "core/cuda_stream.h"
#include "core/device.h"
#include "core/memory_pool.h"

namespace lockstep::core {

class CudaGraph final : public Graph {
 public:
  struct Parts {
    std::shared_ptr<CudaContext> context;
    std::shared_ptr<MemoryPool> pool;
    MemoryPool::Kept kept;  // given back to the pool in the end
    void* graph;            // cudaGraph_t, owned; nullptr where the capture failed
  };
  explicit CudaGraph(Parts parts);
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override;

  void instantiate(Stream& stream);  // once, before the first launch, which the stream is likely to see
  void launch(Stream& stream) override;

 private:
  Parts parts_;
  void* executable_ = nullptr;  // cudaGraphExec_t
};

}  // namespace lockstep::core
