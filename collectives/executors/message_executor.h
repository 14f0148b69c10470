// Runs any plan over any Transport: each rank interprets its own part, and bytes travel as messages.
//
// Nothing in a lane blocks another: the rank starts whatever its memory allows, posts receives ahead, and reduces a
// segment while the next is on its way. run() allocates nothing. docs/architecture.md shows where this stands.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/transport.h"

namespace lockstep::executors {

struct MessageOptions {
  std::int64_t segment_bytes = 128 << 10;    // the largest message
  int recv_window = 4;                       // receives that a lane posts ahead
  int send_window = 4;                       // sends that a lane has under way to a peer
  std::chrono::milliseconds timeout{30000};  // without any message coming or going
};

// This rank's side of the plan; all ranks must use the same plan, operation and options. The plan is checked; one that
// does not work in place runs on a copy of the input where the operation is in place. The transport must outlive the
// collective. Memory is the host's.
std::unique_ptr<collectives::Collective> make_message_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation,
                                                                 transports::Transport& transport,
                                                                 const MessageOptions& options = {});

}  // namespace lockstep::executors
