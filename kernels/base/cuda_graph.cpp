#include "kernels/base/cuda_graph.h"

#include <cuda_runtime_api.h>

#include "core/cuda_call.h"

namespace lockstep::kernels {
namespace {

cudaStream_t stream_of(const CudaContext& cuda) {
  return static_cast<cudaStream_t>(cuda.stream());
}

}  // namespace

struct CudaGraph::State {
  explicit State(CudaContext& context) : cuda(context) {}
  ~State() {
    if (executable != nullptr) (void)cudaGraphExecDestroy(executable);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
  }

  // Ends the capture also where the work throws; the graph is then incomplete and goes.
  void capture(const std::function<void()>& work) {
    core::check_cuda(cudaStreamBeginCapture(stream_of(cuda), cudaStreamCaptureModeThreadLocal),
                     "cudaStreamBeginCapture", cuda.place());
    try {
      work();
    } catch (...) {
      (void)cudaStreamEndCapture(stream_of(cuda), &graph);
      throw;
    }
    core::check_cuda(cudaStreamEndCapture(stream_of(cuda), &graph), "cudaStreamEndCapture", cuda.place());
  }

  CudaContext& cuda;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
};

CudaGraph::CudaGraph(CudaContext& cuda, const std::function<void()>& work) : state_(std::make_unique<State>(cuda)) {
  state_->capture(work);
  core::check_cuda(cudaGraphInstantiateWithFlags(&state_->executable, state_->graph, 0),
                   "cudaGraphInstantiateWithFlags", cuda.place());
  core::check_cuda(cudaGraphUpload(state_->executable, stream_of(cuda)), "cudaGraphUpload", cuda.place());
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::launch() {
  core::check_cuda(cudaGraphLaunch(state_->executable, stream_of(state_->cuda)), "cudaGraphLaunch",
                   state_->cuda.place());
}

void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes) {
  core::check_cuda(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, stream_of(cuda)),
                   "cudaMemcpyAsync on the device", cuda.place());
}

}  // namespace lockstep::kernels
