#include "kernels/base/cuda_graph.h"

#include "core/device.h"

namespace lockstep::kernels {

void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes) {
  cuda.device().copy_on(cuda.queue(), to, from, size_bytes);
}

}  // namespace lockstep::kernels
