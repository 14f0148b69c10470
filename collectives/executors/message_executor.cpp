#include "collectives/executors/message_executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "collectives/executors/message_program.h"
#include "core/error.h"
#include "core/wait.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::executors {
namespace {

using transports::Request;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// A send under way.
struct Flight {
  int op = -1;
  Request request;
};

// The sends of a lane to a peer, in one run.
struct SendState {
  std::size_t next = 0;           // in the queue: the next to be started
  std::vector<Flight> under_way;  // at most the window
};

// The receives of a lane, in one run: all before `retired` are done, before `landed` have their bytes, before `posted`
// have been given to the transport.
struct RecvState {
  std::size_t posted = 0;
  std::size_t landed = 0;
  std::size_t retired = 0;
  std::vector<Request> requests;  // [index in the queue, modulo the window]
};

class MessageCollective final : public collectives::Collective {
 public:
  MessageCollective(MessageProgram program, const collectives::Operation& operation, transports::Transport& transport,
                    const MessageOptions& options)
      : program_(std::move(program)),
        operation_(operation),
        elem_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
        transport_(transport),
        options_(options),
        scratch_(at(program_.scratch_bytes)),
        waits_(program_.ops.size()),
        sends_(program_.sends.size()),
        recvs_(program_.recvs.size()) {
    for (const MessageOp& op : program_.ops) initial_waits_.push_back(op.waits);
    for (SendState& sends : sends_) sends.under_way.reserve(at(options.send_window));
    for (RecvState& recvs : recvs_) recvs.requests.resize(at(options.recv_window));
    ready_.reserve(program_.ops.size());
  }

  void run(const void* input, void* output) override {
    // The input is only ever written where it is the output.
    base_ = {static_cast<std::byte*>(const_cast<void*>(input)), static_cast<std::byte*>(output), scratch_.data()};
    waits_ = initial_waits_;
    ready_ = program_.first;
    left_ = program_.ops.size();
    for (SendState& sends : sends_) sends.next = 0;
    for (RecvState& recvs : recvs_) recvs.posted = recvs.landed = recvs.retired = 0;
    try {
      do_ready();
      while (left_ > 0) {
        if (advance()) {
          idle_rounds_ = 0;
        } else {
          idle();
        }
      }
    } catch (...) {
      transport_.abandon();
      throw;
    }
  }

 private:
  static constexpr int kDone = -1;  // in waits_

  bool advance() {
    bool moved = false;
    for (std::size_t l = 0; l < recvs_.size(); ++l) moved |= post(program_.recvs[l], recvs_[l]);
    for (std::size_t c = 0; c < sends_.size(); ++c) moved |= start(program_.sends[c], sends_[c]);
    for (std::size_t l = 0; l < recvs_.size(); ++l) moved |= land(program_.recvs[l], recvs_[l]);
    for (SendState& sends : sends_) moved |= finish(sends);
    return moved;
  }

  bool post(const Queue& queue, RecvState& recvs) {
    const std::size_t before = recvs.posted;
    while (recvs.retired < recvs.posted && waits_[at(queue[recvs.retired])] == kDone) ++recvs.retired;
    const std::size_t end = std::min(queue.size(), recvs.retired + recvs.requests.size());
    for (; recvs.posted < end; ++recvs.posted) {
      const int index = queue[recvs.posted];
      const MessageOp& op = program_.ops[at(index)];
      if (op.action == Action::recv && waits_[at(index)] != 0) break;
      std::byte* to = op.action == Action::recv ? memory(op.dst) : staging(op);
      recvs.requests[recvs.posted % recvs.requests.size()] = transport_.recv(op.peer, op.lane, {to, at(op.bytes)});
    }
    return recvs.posted != before;
  }

  bool start(const Queue& queue, SendState& sends) {
    const std::size_t before = sends.next;
    for (; sends.next < queue.size() && sends.under_way.size() < at(options_.send_window); ++sends.next) {
      const int index = queue[sends.next];
      const MessageOp& op = program_.ops[at(index)];
      if (waits_[at(index)] != 0) break;
      sends.under_way.push_back({index, transport_.send(op.peer, op.lane, {memory(op.src), at(op.bytes)})});
    }
    return sends.next != before;
  }

  // In order: what was received first is reduced first, so that results do not depend on timing.
  bool land(const Queue& queue, RecvState& recvs) {
    const std::size_t before = recvs.landed;
    while (recvs.landed < recvs.posted && transport_.done(recvs.requests[recvs.landed % recvs.requests.size()])) {
      const int index = queue[recvs.landed++];
      if (program_.ops[at(index)].action == Action::recv) {
        complete(index);
      } else {
        release(index);
      }
      do_ready();
    }
    return recvs.landed != before;
  }

  bool finish(SendState& sends) {
    std::size_t left = 0;
    for (const Flight& flight : sends.under_way) {
      if (transport_.done(flight.request)) {
        complete(flight.op);
      } else {
        sends.under_way[left++] = flight;
      }
    }
    const bool moved = left != sends.under_way.size();
    sends.under_way.resize(left);
    do_ready();
    return moved;
  }

  void complete(int index) {
    waits_[at(index)] = kDone;
    --left_;
    const MessageOp& op = program_.ops[at(index)];
    for (std::uint32_t i = 0; i < op.num_next; ++i) release(program_.next[op.first_next + i]);
  }

  // One thing less to wait for.
  void release(int index) {
    if (--waits_[at(index)] == 0 && runs_when_released(program_.ops[at(index)].action)) ready_.push_back(index);
  }

  void do_ready() {
    while (!ready_.empty()) {
      const int index = ready_.back();
      ready_.pop_back();
      combine(program_.ops[at(index)]);
      complete(index);
    }
  }

  // The work on memory of all actions but plain messages.
  void combine(const MessageOp& op) {
    std::byte* to = memory(op.dst);
    switch (op.action) {
      case Action::copy:
        std::memmove(to, memory(op.src), at(op.bytes));
        break;
      case Action::recv_reduce:
        reduce(op, to, memory(op.src), staging(op));
        break;
      case Action::reduce:
        reduce(op, to, to, memory(op.src));
        break;
      default:
        break;
    }
  }

  void reduce(const MessageOp& op, void* to, const void* a, const void* b) const {
    const std::array<void*, 1> destinations{to};
    const std::array<const void*, 2> sources{a, b};
    const bool divides = op.completes && operation_.op == core::ReduceOp::avg;
    kernels::reduce({.dtype = operation_.dtype,
                     .op = operation_.op,
                     .destinations = destinations,
                     .sources = sources,
                     .count = op.bytes / elem_bytes_,
                     .average_over = divides ? transport_.num_ranks() : 0});
  }

  std::byte* staging(const MessageOp& op) { return scratch_.data() + op.staging_bytes; }
  std::byte* memory(const Place& place) const {
    return base_[static_cast<std::size_t>(place.buffer)] + place.offset_bytes;
  }

  void idle() {
    transport_.idle();
    constexpr int kRoundsBetweenLooksAtTheClock = 256;
    if (++idle_rounds_ == 1) {
      stuck_since_ = core::Clock::now();
    } else if (idle_rounds_ % kRoundsBetweenLooksAtTheClock == 0 &&
               core::Clock::now() - stuck_since_ > options_.timeout) {
      throw core::Error(core::Failure::timeout, describe_wait());
    }
  }

  std::string describe_wait() const {
    const auto name = [this](int rank) { return "rank " + std::to_string(transport_.number_of(rank)); };
    std::string text = name(transport_.rank()) + ": no message for " + std::to_string(options_.timeout.count()) + " ms";
    for (std::size_t l = 0; l < recvs_.size(); ++l) {
      if (recvs_[l].landed == recvs_[l].posted) continue;
      const MessageOp& op = program_.ops[at(program_.recvs[l][recvs_[l].landed])];
      return text + "; waits for " + std::to_string(op.bytes) + " bytes from " + name(op.peer);
    }
    for (const SendState& sends : sends_) {
      if (sends.under_way.empty()) continue;
      const MessageOp& op = program_.ops[at(sends.under_way.front().op)];
      return text + "; " + std::to_string(op.bytes) + " bytes to " + name(op.peer) + " are not taken";
    }
    return text;
  }

  MessageProgram program_;
  collectives::Operation operation_;
  std::int64_t elem_bytes_;
  transports::Transport& transport_;
  MessageOptions options_;
  std::vector<std::byte> scratch_;
  std::vector<int> initial_waits_;

  // Of one run.
  std::array<std::byte*, 3> base_{};  // [buffer]
  std::vector<int> waits_;            // [op]
  std::vector<SendState> sends_;      // as program_.sends
  std::vector<RecvState> recvs_;      // [lane]
  std::vector<int> ready_;            // work on memory that nothing holds up
  std::size_t left_ = 0;              // operations that are not done
  std::int64_t idle_rounds_ = 0;
  core::Clock::time_point stuck_since_{};
};

}  // namespace

std::unique_ptr<collectives::Collective> make_message_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation,
                                                                 transports::Transport& transport,
                                                                 const MessageOptions& options) {
  LOCKSTEP_CHECK(plan.kind == operation.kind && plan.num_ranks == transport.num_ranks(), "plan for another operation");
  if (options.segment_bytes < 1 || options.recv_window < 1 || options.send_window < 1) {
    throw core::usage_error("message executor: segment size and windows must be at least 1");
  }
  auto programs = make_message_programs(usable_plan(plan, operation), operation,
                                        {options.segment_bytes, options.recv_window, options.send_window});
  return std::make_unique<MessageCollective>(std::move(programs[at(transport.rank())]), operation, transport, options);
}

}  // namespace lockstep::executors
