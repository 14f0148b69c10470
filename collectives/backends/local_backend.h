// The local backend: see backend.h.
#pragma once

#include "collectives/backends/backend.h"

namespace lockstep::backends {

void run_local(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

}  // namespace lockstep::backends
