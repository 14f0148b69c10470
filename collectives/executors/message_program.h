// A plan prepared for one rank over messages: operations of at most one segment each, and the operations that each
// waits for. Also the same operations as rounds of grouped messages, and the run of one rank's operations over any
// port.
//
// Lanes and `after` edges are gone: an operation waits for operations that access the same memory. Two orders stay:
// sends of a channel, which is first-in first-out, and receives of a lane.
#pragma once

#include <algorithm>
#include <cstddef>
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

// Runs one rank's MessageProgram, whatever carries the messages: the executor runs it over a transport and memory
// (message_executor.cpp), a dry run over neither (message_rounds.cpp).
//
// Receives of a lane are posted ahead, in order, as far as the window and their destinations allow; sends start in the
// order of their channel. Messages are processed in order, so that results do not depend on timing.
//
// A Port has
//   Request                 identifies a message in flight
//   Request recv(int op)    posts the receive of program.ops[op]; recv_reduce receives into its staging slot
//   Request send(int op)
//   bool done(Request)
//   void work(int op)       runs the operation's work on memory; not called for plain sends and receives
template <typename Port>
class MessageRun {
 public:
  // All three outlive this object.
  MessageRun(const MessageProgram& program, const MessageLimits& limits, Port& port)
      : program_(program),
        send_window_(static_cast<std::size_t>(limits.send_window)),
        port_(port),
        waits_(program.ops.size()),
        sends_(program.sends.size()),
        recvs_(program.recvs.size()) {
    for (const MessageOp& op : program.ops) initial_waits_.push_back(op.waits);
    for (Sends& sends : sends_) sends.in_flight.reserve(send_window_);
    for (Recvs& recvs : recvs_) recvs.requests.resize(static_cast<std::size_t>(limits.recv_window));
    ready_.reserve(program.ops.size());
  }

  // Call it before each run. Does the work that has no waits.
  void begin() {
    waits_ = initial_waits_;
    ready_ = program_.first;
    left_ = program_.ops.size();
    for (Sends& sends : sends_) {
      sends.next = 0;
      sends.in_flight.clear();
    }
    for (Recvs& recvs : recvs_) recvs.posted = recvs.landed = recvs.retired = 0;
    do_ready();
  }
  bool ended() const { return left_ == 0; }

  // Starts all messages that can start; returns whether there were any.
  bool start() {
    bool moved = false;
    for (std::size_t l = 0; l < recvs_.size(); ++l) moved |= post(program_.recvs[l], recvs_[l]);
    for (std::size_t c = 0; c < sends_.size(); ++c) moved |= send(program_.sends[c], sends_[c]);
    return moved;
  }
  // Completes all messages that have ended, and does the work that waited for them; returns whether there were any.
  bool take() {
    bool moved = false;
    for (std::size_t l = 0; l < recvs_.size(); ++l) moved |= land(program_.recvs[l], recvs_[l]);
    for (Sends& sends : sends_) moved |= finish(sends);
    return moved;
  }

  // A posted receive that has not ended; -1: none.
  int open_recv() const {
    for (std::size_t l = 0; l < recvs_.size(); ++l) {
      if (recvs_[l].landed != recvs_[l].posted) return program_.recvs[l][recvs_[l].landed];
    }
    return -1;
  }
  int open_send() const {
    for (const Sends& sends : sends_) {
      if (!sends.in_flight.empty()) return sends.in_flight.front().op;
    }
    return -1;
  }

 private:
  static constexpr int kDone = -1;  // value in waits_

  struct Flight {
    int op = -1;
    typename Port::Request request = {};
  };
  // Sends of a lane to a peer.
  struct Sends {
    std::size_t next = 0;           // index in the queue of the next send to start
    std::vector<Flight> in_flight;  // at most the window
  };
  // Receives of a lane: those before `retired` are done, those before `landed` have arrived, those before `posted` have
  // been posted.
  struct Recvs {
    std::size_t posted = 0;
    std::size_t landed = 0;
    std::size_t retired = 0;
    std::vector<typename Port::Request> requests;  // [index in the queue, modulo the window]
  };

  int& waits(int op) { return waits_[static_cast<std::size_t>(op)]; }
  Action action(int op) const { return program_.ops[static_cast<std::size_t>(op)].action; }

  bool post(const Queue& queue, Recvs& recvs) {
    const std::size_t before = recvs.posted;
    while (recvs.retired < recvs.posted && waits(queue[recvs.retired]) == kDone) ++recvs.retired;
    const std::size_t end = std::min(queue.size(), recvs.retired + recvs.requests.size());
    for (; recvs.posted < end; ++recvs.posted) {
      const int op = queue[recvs.posted];
      if (action(op) == Action::recv && waits(op) != 0) break;
      recvs.requests[recvs.posted % recvs.requests.size()] = port_.recv(op);
    }
    return recvs.posted != before;
  }

  bool send(const Queue& queue, Sends& sends) {
    const std::size_t before = sends.next;
    for (; sends.next < queue.size() && sends.in_flight.size() < send_window_; ++sends.next) {
      const int op = queue[sends.next];
      if (waits(op) != 0) break;
      sends.in_flight.push_back({op, port_.send(op)});
    }
    return sends.next != before;
  }

  bool land(const Queue& queue, Recvs& recvs) {
    const std::size_t before = recvs.landed;
    while (recvs.landed < recvs.posted && port_.done(recvs.requests[recvs.landed % recvs.requests.size()])) {
      const int op = queue[recvs.landed++];
      if (action(op) == Action::recv) {
        complete(op);
      } else {
        release(op);
      }
      do_ready();
    }
    return recvs.landed != before;
  }

  bool finish(Sends& sends) {
    std::size_t left = 0;
    for (const Flight& flight : sends.in_flight) {
      if (port_.done(flight.request)) {
        complete(flight.op);
      } else {
        sends.in_flight[left++] = flight;
      }
    }
    const bool moved = left != sends.in_flight.size();
    sends.in_flight.resize(left);
    do_ready();
    return moved;
  }

  void complete(int index) {
    waits(index) = kDone;
    --left_;
    const MessageOp& op = program_.ops[static_cast<std::size_t>(index)];
    for (std::uint32_t i = 0; i < op.num_next; ++i) release(program_.next[op.first_next + i]);
  }

  // The operation has one wait less.
  void release(int op) {
    if (--waits(op) == 0 && runs_when_released(action(op))) ready_.push_back(op);
  }

  void do_ready() {
    while (!ready_.empty()) {
      const int op = ready_.back();
      ready_.pop_back();
      port_.work(op);
      complete(op);
    }
  }

  const MessageProgram& program_;
  const std::size_t send_window_;
  Port& port_;
  std::vector<int> initial_waits_;  // [op]

  // State of one call.
  std::vector<int> waits_;    // [op]
  std::vector<Sends> sends_;  // as program_.sends
  std::vector<Recvs> recvs_;  // [lane]
  std::vector<int> ready_;    // work on memory that can run
  std::size_t left_ = 0;      // operations that are not done
};

}  // namespace lockstep::executors
