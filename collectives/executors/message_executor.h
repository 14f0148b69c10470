// Runs any plan over any Transport: each rank interprets its own part, and bytes travel as messages.
//
// No operation of a lane blocks another: the rank starts whatever its memory allows, posts receives ahead, and reduces
// a segment while the next is in flight. run() allocates nothing. docs/architecture.md shows its place in the whole.
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
  int send_window = 4;                       // sends that a lane has in flight to a peer
  std::chrono::milliseconds timeout{30000};  // deadline without any message sent or received
};

// Prepares this rank's part of the plan; all ranks must use the same plan, operation and options. The plan is checked;
// one that does not work in place runs on a copy of the input if the operation is in place. The transport must outlive
// the collective. Buffers are in host memory.
std::unique_ptr<collectives::Collective> make_message_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation,
                                                                 transports::Transport& transport,
                                                                 const MessageOptions& options = {});

}  // namespace lockstep::executors
