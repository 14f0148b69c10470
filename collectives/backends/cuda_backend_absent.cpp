// Takes the place of cuda_backend.cpp in builds without CUDA.
#include "collectives/backends/backend_kinds.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {

std::optional<std::string> cuda_absence() {
  return core::why_no_cuda();
}

std::unique_ptr<GpuMember> join_cuda(transports::World& /*world*/, RankGpu& /*gpu*/,
                                     const BackendOptions& /*options*/) {
  throw core::Error(core::Failure::not_built, *core::why_no_cuda());
}

}  // namespace lockstep::backends
