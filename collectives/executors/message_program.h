// A plan made ready for one rank over messages: operations of at most a segment each, and what each waits for.
//
// Lanes and `after` edges are gone: an operation waits for those that touch the same memory. What stays in order are
// the sends of a channel, which is first-in first-out, and the receives of a lane.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"

namespace lockstep::executors {

struct MessageLimits {
  std::int64_t segment_bytes;  // the largest message
  int recv_window;             // receives that a lane posts ahead: as many staging slots
  int send_window;             // sends that a lane may have under way to a peer
};

// A recv lands in its place; a recv_reduce lands in a staging slot.
enum class Action : std::uint8_t { send, recv, recv_reduce, copy, reduce };

inline bool is_recv(Action action) {
  return action == Action::recv || action == Action::recv_reduce;
}
// Whether it is work on memory that is done as soon as it has nothing to wait for.
inline bool runs_when_released(Action action) {
  return action != Action::send && action != Action::recv;
}

struct Place {
  plan::Buffer buffer = plan::Buffer::input;
  std::int64_t offset_bytes = 0;
};

struct MessageOp {
  Action action = Action::copy;
  bool completes = false;  // the result has the contribution of every rank: an average divides here
  int step_id = 0;         // of the step that it is a segment of
  int peer = -1;
  int lane = 0;
  int waits = 0;                 // operations to be done before; one more for a recv_reduce, whose message has to land
  std::uint32_t first_next = 0;  // operations that wait for this one: next[first_next, first_next + num_next)
  std::uint32_t num_next = 0;
  std::int64_t bytes = 0;
  std::int64_t staging_bytes = 0;  // where in scratch a recv_reduce lands
  Place src;
  Place dst;
};

// Operations in the order in which they are started.
using Queue = std::vector<int>;

struct MessageProgram {
  std::vector<MessageOp> ops;
  std::vector<int> next;
  std::vector<Queue> sends;        // a queue for each lane and peer
  std::vector<Queue> recvs;        // a queue for each lane
  std::vector<int> first;          // copies and reductions that wait for nothing
  std::int64_t scratch_bytes = 0;  // the plan's slots, copies of what is sent, staging slots
};

// The plan itself, or in place one that begins with a private copy of the input, where the plan needs it.
plan::Plan usable_plan(const plan::Plan& plan, const collectives::Operation& operation);

// The program of every rank. The plan must have passed the checker for operation.in_place.
//
// A step that overwrites what a send reads waits until the send is done. Where such waits could close a cycle (two
// ranks that swap a buffer, over a transport that buffers nothing), all such sends leave from copies.
std::vector<MessageProgram> make_message_programs(const plan::Plan& plan, const collectives::Operation& operation,
                                                  const MessageLimits& limits);

// Whether the programs get stuck over a transport in which a send ends only when its receive is posted. Which
// operations can run does not depend on timing, and buffering only lets more of them run: if these end here, they end
// always.
bool find_message_deadlock(const std::vector<MessageProgram>& ranks, const MessageLimits& limits);

}  // namespace lockstep::executors
