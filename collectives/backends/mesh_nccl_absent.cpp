// Takes the place of nccl_backend.cpp in builds without NCCL.
#include "collectives/backends/backend_kinds.h"
#include "collectives/libraries/nccl_library.h"
#include "core/error.h"

namespace lockstep::backends {

std::unique_ptr<MeshDevice> make_nccl_mesh_device(const MeshOptions& /*options*/, transports::World& /*all*/,
                                                  GroupWorlds /*worlds*/) {
  throw core::Error(core::Failure::not_built, *libraries::why_no_nccl());
}

}  // namespace lockstep::backends
