// Takes the place of nccl_backend.cpp in builds without NCCL.
#include "collectives/backends/nccl_backend.h"
#include "collectives/libraries/nccl_library.h"
#include "core/error.h"

namespace lockstep::backends {

std::optional<std::string> nccl_absence() {
  return libraries::why_no_nccl();
}

void run_nccl(const BackendOptions& /*options*/, const std::function<void(Endpoint&)>& /*body*/) {
  throw core::Error(core::Failure::not_built, *nccl_absence());
}

}  // namespace lockstep::backends
