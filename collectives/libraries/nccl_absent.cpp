// Takes the place of nccl_group.cpp and its neighbours in builds without NCCL. LOCKSTEP_WHY_NCCL is configure's reason.
#include "collectives/libraries/nccl_library.h"
#include "core/error.h"

namespace lockstep::libraries {

std::optional<std::string> why_no_nccl() {
  return std::string("NCCL is not built in: ") + LOCKSTEP_WHY_NCCL;
}

std::string nccl_version() {
  return "";
}

int nccl_version_code() {
  return 0;
}

std::optional<std::string> why_no_shared_gpu() {
  return why_no_nccl();
}

std::unique_ptr<NcclGroup> join_nccl(transports::World& /*world*/, const core::Device& /*device*/,
                                     const NcclGroupOptions& /*options*/) {
  throw core::Error(core::Failure::not_built, *why_no_nccl());
}

}  // namespace lockstep::libraries
