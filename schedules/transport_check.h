// Whether ranks that run their lists, messages among them (schedules/messages.h), come to wait for each other for ever.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/schedule.h"

namespace lockstep::schedules {

enum class Waiting : std::uint8_t {
  blocking,  // each send waits until it is received, one after another (MPI_Ssend)
  batched,   // what stands between two computations is begun together and waited for before the next (PyTorch's P2POp)
  buffered,  // a send goes on while fewer than `slots` messages of its pair are under way
};

struct ChannelRules {
  Waiting waiting = Waiting::batched;
  std::int32_t slots = 1;  // of a pair of ranks, if buffered
};

// Empty if every rank gets to its end; else where each rank stands that does not: "rank 1 at 4RECV_F2 from rank 0;
// ...".
std::string hang_of(const Schedule& with_messages, const ChannelRules& rules);

}  // namespace lockstep::schedules
