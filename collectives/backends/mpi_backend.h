// The MPI backend: see backend.h.
#pragma once

#include "collectives/backends/backend.h"

namespace lockstep::backends {

std::optional<std::string> mpi_absence();
void run_mpi(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

}  // namespace lockstep::backends
