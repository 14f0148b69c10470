// The NCCL backend: see backend.h.
#pragma once

#include "collectives/backends/backend.h"

namespace lockstep::backends {

std::optional<std::string> nccl_absence();
void run_nccl(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

}  // namespace lockstep::backends
