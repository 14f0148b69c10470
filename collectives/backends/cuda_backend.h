// The CUDA backend: see backend.h.
#pragma once

#include "collectives/backends/backend.h"

namespace lockstep::backends {

std::optional<std::string> cuda_absence();
void run_cuda(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

}  // namespace lockstep::backends
