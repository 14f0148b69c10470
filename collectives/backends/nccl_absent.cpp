// Takes the place of nccl_backend.cpp in builds without NCCL.
#include "collectives/backends/backend_kinds.h"
#include "collectives/libraries/nccl_library.h"
#include "core/error.h"

namespace lockstep::backends {

std::optional<std::string> nccl_absence() {
  return libraries::why_no_nccl();
}

std::unique_ptr<GpuMember> join_nccl(transports::World& /*world*/, RankGpu& /*gpu*/,
                                     const BackendOptions& /*options*/) {
  throw core::Error(core::Failure::not_built, *nccl_absence());
}

std::unique_ptr<MeshDevice> make_nccl_mesh_device(const MeshOptions& /*options*/, transports::World& /*all*/,
                                                  GroupWorlds /*worlds*/) {
  throw core::Error(core::Failure::not_built, *libraries::why_no_nccl());
}

}  // namespace lockstep::backends
