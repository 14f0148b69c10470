// A Graph made from what CUDA recorded on a captured stream.
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

}  // namespace lockstep::core
