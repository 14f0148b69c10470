// One operation of one rank by NCCL: what NcclGroup::prepare() hands out.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_calls.h"
#include "core/device.h"

namespace lockstep::libraries {

// A rank's end of a communicator, shared with calls that may outlive their caller (core/deadline_call.h).
struct NcclMember {
  ncclComm* communicator;
  int rank;
  int num_ranks;
  int device;
  std::chrono::nanoseconds timeout;
  bool broken;  // aborted, or stuck in a call: NCCL must not be asked again
};

std::unique_ptr<collectives::Collective> make_nccl_collective(std::shared_ptr<NcclMember> member,
                                                              const collectives::Operation& operation,
                                                              core::Stream& stream);

}  // namespace lockstep::libraries
