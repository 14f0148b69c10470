// Without CUDA in the build no device has streams for kernels.
#include "core/error.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::trainer {

std::shared_ptr<kernels::CudaContext> make_cuda_context(core::Device& /*device*/, core::Stream& /*stream*/,
                                                        int /*rank*/) {
  LOCKSTEP_CHECK(false, "this build has no CUDA and so no kernels in streams");
  return nullptr;
}

}  // namespace lockstep::trainer
