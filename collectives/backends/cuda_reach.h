// How the ranks of a group reach each other's device memory: in one process by its address, between processes of a host
// by CUDA's handles. Built with CUDA only.
#pragma once

#include <vector>

#include "collectives/executors/cuda/cuda_ranks.h"
#include "collectives/transports/world.h"
#include "core/cuda_call.h"

namespace lockstep::backends {

// All ranks make theirs at the same time, each with its own device, whose memory it shows. Throws a usage Error if
// ranks are on several hosts. What it opens stays open as long as the function lives.
executors::ReachPeers reach_peers(transports::World& world, core::CudaPlace place);

}  // namespace lockstep::backends
