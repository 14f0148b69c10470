#include "kernels/base/cuda_context.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::trainer {

std::shared_ptr<kernels::CudaContext> make_cuda_context(core::Device& device, core::Stream& stream, int rank) {
  return std::make_shared<kernels::CudaContext>(device, stream, rank);
}

}  // namespace lockstep::trainer
