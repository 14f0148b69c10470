// Access to the device memory of other ranks: by its address within a process, by CUDA's IPC handles between processes
// of a host. Built with CUDA only.
#pragma once

#include <vector>

#include "collectives/executors/cuda/cuda_ranks.h"
#include "collectives/transports/world.h"
#include "core/cuda_call.h"

namespace lockstep::backends {

// Collective: all ranks make theirs at the same time, each with the device whose memory it shares. Throws a usage Error
// if ranks are on several hosts. Opened handles stay open as long as the returned function lives.
executors::ReachPeers reach_peers(transports::World& world, core::CudaPlace place);

}  // namespace lockstep::backends
