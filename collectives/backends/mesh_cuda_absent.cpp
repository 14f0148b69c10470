// Takes the place of cuda_backend.cpp in builds without CUDA, by itself: a test of queues links a mesh of its own
// instead.
#include "collectives/backends/backend_kinds.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {

std::unique_ptr<MeshDevice> make_cuda_mesh_device(const MeshOptions& /*options*/, transports::World& /*all*/,
                                                  const ChannelWorlds& /*worlds*/) {
  throw core::Error(core::Failure::not_built, *core::why_no_cuda());
}

}  // namespace lockstep::backends
