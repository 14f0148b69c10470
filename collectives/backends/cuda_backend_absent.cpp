// Takes the place of cuda_backend.cpp in builds without CUDA.
#include "collectives/backends/cuda_backend.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {

std::optional<std::string> cuda_absence() {
  return core::why_no_cuda();
}

void run_cuda(const BackendOptions& /*options*/, const std::function<void(Endpoint&)>& /*body*/) {
  throw core::Error(core::Failure::not_built, *core::why_no_cuda());
}

}  // namespace lockstep::backends
