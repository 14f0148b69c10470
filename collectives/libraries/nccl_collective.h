// One operation of one rank by NCCL: the result of NcclGroup::prepare().
#pragma once

#include <memory>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_member.h"
#include "core/device.h"

namespace lockstep::libraries {

std::unique_ptr<collectives::Collective> make_nccl_collective(NcclMemberPtr member,
                                                              const collectives::Operation& operation,
                                                              core::Stream& stream);

}  // namespace lockstep::libraries
