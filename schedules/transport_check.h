// Checks whether ranks that run their lists with messages (schedules/messages.h) deadlock on a given kind of channel.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/schedule.h"

namespace lockstep::schedules {

enum class Waiting : std::uint8_t {
  blocking,  // each send blocks until it is received (MPI_Ssend)
  batched,   // messages between two computations start together and are awaited before the next computation (PyTorch's
             // P2POp)
  buffered,  // a send does not block while fewer than `slots` messages of its (sender, receiver) pair are in flight
};

struct ChannelRules {
  Waiting waiting = Waiting::batched;
  std::int32_t slots = 1;  // per pair of ranks, if buffered
};

// Empty if every rank finishes; else the action at which each blocked rank stands: "rank 1 at 4RECV_F2 from rank 0;
// ...".
std::string hang_of(const Schedule& with_messages, const ChannelRules& rules);

}  // namespace lockstep::schedules
