// A plan prepared for one rank over messages: operations of at most one segment each, and the operations that each
// waits for.
//
// Lanes and `after` edges are gone: an operation waits for those that access the same memory. Two orders stay: that of
// the sends of a channel, which is first-in first-out, and that of the receives of a lane.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"

namespace lockstep::executors {

struct MessageLimits {
  std::int64_t segment_bytes;  // the largest message
  int recv_window;             // receives that a lane posts ahead: also its number of staging slots
  int send_window;             // sends that a lane may have in flight to a peer
};

// A recv writes to its destination; a recv_reduce receives into a staging slot.
enum class Action : std::uint8_t { send, recv, recv_reduce, copy, reduce };

inline bool is_recv(Action action) {
  return action == Action::recv || action == Action::recv_reduce;
}
// True for work on memory, which runs as soon as all operations that it waits for are done.
inline bool runs_when_released(Action action) {
  return action != Action::send && action != Action::recv;
}

struct BufferAddress {
  plan::Buffer buffer = plan::Buffer::input;
  std::int64_t offset_bytes = 0;
};

struct MessageOp {
  Action action = Action::copy;
  bool completes = false;  // the result has the contribution of every rank: an average divides here
  int step_id = 0;         // the step that this is a segment of
  int peer = -1;
  int lane = 0;
  // operations to be done before; plus one for a recv_reduce, whose message has to arrive
  int waits = 0;
  std::uint32_t first_next = 0;  // operations that wait for this one: next[first_next, first_next + num_next)
  std::uint32_t num_next = 0;
  std::int64_t bytes = 0;
  std::int64_t staging_bytes = 0;  // offset in scratch of the staging slot of a recv_reduce
  BufferAddress src;
  BufferAddress dst;
};

// Operations in the order in which they are started.
using Queue = std::vector<int>;

struct MessageProgram {
  std::vector<MessageOp> ops;
  std::vector<int> next;
  std::vector<Queue> sends;        // a queue for each lane and peer
  std::vector<Queue> recvs;        // a queue for each lane
  std::vector<int> first;          // copies and reductions without waits
  std::int64_t scratch_bytes = 0;  // the plan's slots, copies of what is sent, staging slots
};

// Returns the plan itself, or one that begins with a private copy of the input if the plan needs that in place.
plan::Plan usable_plan(const plan::Plan& plan, const collectives::Operation& operation);

// Makes the program of every rank. The plan must have passed the checker for operation.in_place.
//
// A step that overwrites memory that a send reads waits until the send is done. If such waits could form a cycle (two
// ranks that swap a buffer, over a transport that buffers nothing), all such sends are made from copies.
std::vector<MessageProgram> make_message_programs(const plan::Plan& plan, const collectives::Operation& operation,
                                                  const MessageLimits& limits);

// True if the programs deadlock over a transport in which a send ends only when its receive is posted. The set of
// operations that can run does not depend on timing, and buffering only enlarges it: programs that end here always end.
bool find_message_deadlock(const std::vector<MessageProgram>& ranks, const MessageLimits& limits);

// Message programs as rounds: the operations of each rank if messages go in groups, one group after the other, and no
// group ends before all its messages are done. NCCL's groups of sends and receives in a stream work like this; so does
// a transport that buffers nothing.
//
// Rounds cannot hang: the two ends of a message are in the round of the same number. So a rank's group k only needs
// other ranks to have begun their groups k, which only needs all groups below k to be done.

// Operations by their index in the rank's program. Work on memory comes first, in this order; then all messages at
// once. Messages between two ranks have the same order at both ends.
struct MessageRound {
  std::vector<int> work;
  std::vector<int> sends;
  std::vector<int> recvs;
};
using MessageRounds = std::vector<MessageRound>;  // a rank's, without empty rounds; the last may have no messages

// [rank]. Every message is in the first round in which both of its ends can run. Returns nothing if the programs
// deadlock.
std::optional<std::vector<MessageRounds>> find_message_rounds(const std::vector<MessageProgram>& ranks,
                                                              const MessageLimits& limits);

}  // namespace lockstep::executors
