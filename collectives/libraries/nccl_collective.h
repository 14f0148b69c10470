// One operation of one rank by NCCL: what NcclGroup::prepare() hands out.
#pragma once

#include <chrono>
#include <functional>
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

// Makes a call in which NCCL may connect to other ranks: it waits there without a deadline. Throws Error(timeout) at
// the member's; the call then stays behind on its thread, so all that it uses must be its own or shared with it.
void connect(const std::shared_ptr<NcclMember>& member, const std::function<void()>& call);

std::unique_ptr<collectives::Collective> make_nccl_collective(std::shared_ptr<NcclMember> member,
                                                              const collectives::Operation& operation,
                                                              core::Stream& stream);

}  // namespace lockstep::libraries
