// How ranks on GPUs come to be: threads of this process, or mpirun's.
#pragma once

#include <functional>

#include "collectives/backends/backend.h"

namespace lockstep::backends {

// Runs run_rank(world) on every rank of this process. Links are not emulated on GPUs: refused.
void run_gpu_ranks(const BackendOptions& options, const std::function<void(transports::World&)>& run_rank);

// The GPU that is the rank's turn on its host, and a stream of it. All ranks of the world call it together.
RankGpu open_gpu(transports::World& world, const BackendOptions& options);

}  // namespace lockstep::backends
