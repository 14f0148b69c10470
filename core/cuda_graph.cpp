#include "core/cuda_graph.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda_call.h"

namespace lockstep::core {

CudaGraph::CudaGraph(Parts parts) : parts_(std::move(parts)) {}

// CUDA keeps a running executable graph until it has ended (cudaGraphExecDestroy).
CudaGraph::~CudaGraph() {
  if (parts_.context->frees()) {
    if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
    if (parts_.graph != nullptr) cudaGraphDestroy(static_cast<cudaGraph_t>(parts_.graph));
  }
  parts_.pool->graph_ends(parts_.kept);
}

void CudaGraph::instantiate(Stream& stream) {
  parts_.context->activate();
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiateWithFlags(&executable, static_cast<cudaGraph_t>(parts_.graph), 0),
             "cudaGraphInstantiateWithFlags", parts_.context->place);
  executable_ = executable;
  check_cuda(cudaGraphUpload(executable, static_cast<cudaStream_t>(stream.native())), "cudaGraphUpload",
             parts_.context->place);
}

void CudaGraph::launch(Stream& stream) {
  check_launch(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), static_cast<cudaStream_t>(stream.native())),
               "a CUDA graph", parts_.context->place, stream);
}

}  // namespace lockstep::core
