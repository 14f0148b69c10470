// The CUDA backend: see backend.h.
#pragma once

#include "collectives/backends/backend.h"

namespace lockstep::backends {

std::optional<std::string> cuda_absence();
std::unique_ptr<GpuMember> join_cuda(transports::World& world, RankGpu& gpu, const BackendOptions& options);

}  // namespace lockstep::backends
