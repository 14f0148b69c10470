// Runs one rank's MessageProgram, whatever carries the messages: the executor runs it over a transport and memory
// (message_executor.cpp), a dry run over neither (message_rounds.cpp).
//
// Receives of a lane are posted ahead, in order, as far as the window and their destinations allow; sends start in the
// order of their channel. Messages are processed in order, so that results do not depend on timing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/executors/message_program.h"

namespace lockstep::executors {

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
