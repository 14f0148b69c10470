// A plan made ready for one rank over messages: operations of at most a segment each, and what each waits for.
//
// Lanes and `after` edges are gone: an operation waits for those that touch the same memory. What stays in order are
// the sends of a lane and the receives of a lane, because a channel is first-in first-out.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"

namespace lockstep::executors {

struct MessageProgramOptions {
  std::int64_t segment_bytes;
  int recv_window;  // receives that a lane posts ahead: as many staging slots
};

// The first four are messages. A staged message lands in its lane's next slot and is combined from there.
enum class Action : std::uint8_t { send, send_copy, recv, recv_copy, recv_reduce, copy, reduce };

inline bool is_send(Action action) { return action == Action::send || action == Action::send_copy; }
inline bool is_staged(Action action) { return action == Action::recv_copy || action == Action::recv_reduce; }
inline bool is_recv(Action action) { return action == Action::recv || is_staged(action); }

struct Place {
  plan::Buffer buffer = plan::Buffer::input;
  std::int64_t offset_bytes = 0;
};

struct Operation {
  Action action = Action::copy;
  bool completes = false;  // the result has the contribution of every rank: an average divides here
  int peer = -1;
  int lane = 0;
  int step = 0;           // in the rank's order; segments of a step share it
  int waits = 0;          // operations to be done before; one more for a staged message, which has to land
  std::uint32_t first_next = 0;  // operations that wait for this one: next[first_next, first_next + num_next)
  std::uint32_t num_next = 0;
  std::int64_t bytes = 0;
  std::int64_t private_bytes = 0;  // where in private memory a staged message lands, or a buffered send leaves from
  Place src;
  Place dst;
};

struct LaneQueues {
  std::vector<int> sends;  // operations, in the order in which they are started
  std::vector<int> recvs;
};

struct MessageProgram {
  std::vector<Operation> operations;
  std::vector<int> next;
  std::vector<LaneQueues> lanes;
  std::vector<int> first;  // copies and reductions that wait for nothing
  int num_steps = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t private_bytes = 0;  // staging slots, copies of sends
};

// The plan must have passed the checker for operation.in_place.
MessageProgram make_message_program(const plan::Plan& plan, const collectives::Operation& operation, int rank,
                                    const MessageProgramOptions& options);

}  // namespace lockstep::executors
