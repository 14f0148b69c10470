// What benchmarks need of CUDA beside kernels: graphs of captured work, and copies on the device as a ceiling.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {

// Work captured from a context's stream. The context outlives it.
class CudaGraph {
 public:
  // Calls work() once, which only queues on the context's stream and has run there before; nothing of it runs now.
  CudaGraph(CudaContext& cuda, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch();  // queues all of it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Queues a copy between two places of the device's memory.
void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes);

}  // namespace lockstep::kernels
