#include "collectives/executors/executors.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "collectives/executors/message_program.h"
#include "core/error.h"
#include "core/index.h"
#include "core/wait.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::executors {
namespace {

// A rank's messages over a transport, and its work on memory.
class TransportPort {
 public:
  using Request = transports::Request;

  TransportPort(const MessageProgram& program, const collectives::Operation& operation,
                transports::Transport& transport)
      : program_(program),
        operation_(operation),
        elem_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
        transport_(transport),
        scratch_(at(program.scratch_bytes)) {}

  void begin(const void* input, void* output) {
    // The input is only written where it is also the output.
    base_ = {static_cast<std::byte*>(const_cast<void*>(input)), static_cast<std::byte*>(output), scratch_.data()};
  }

  Request recv(int index) {
    const MessageOp& op = program_.ops[at(index)];
    std::byte* to = op.action == Action::recv ? memory(op.dst) : staging(op);
    return transport_.recv(op.peer, op.lane, {to, at(op.bytes)});
  }
  Request send(int index) {
    const MessageOp& op = program_.ops[at(index)];
    return transport_.send(op.peer, op.lane, {memory(op.src), at(op.bytes)});
  }
  bool done(const Request& request) { return transport_.done(request); }

  void work(int index) {
    const MessageOp& op = program_.ops[at(index)];
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

 private:
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
  std::byte* memory(const BufferAddress& place) const {
    return base_[static_cast<std::size_t>(place.buffer)] + place.offset_bytes;
  }

  const MessageProgram& program_;
  const collectives::Operation operation_;
  const std::int64_t elem_bytes_;
  transports::Transport& transport_;
  std::vector<std::byte> scratch_;
  std::array<std::byte*, 3> base_{};  // [buffer]
};

class MessageCollective final : public collectives::Collective {
 public:
  MessageCollective(MessageProgram program, const collectives::Operation& operation, transports::Transport& transport,
                    const MessageOptions& options)
      : program_(std::move(program)),
        transport_(transport),
        timeout_(options.timeout),
        port_(program_, operation, transport),
        run_(program_, {options.segment_bytes, options.recv_window, options.send_window}, port_) {}

  void run(const void* input, void* output) override {
    port_.begin(input, output);
    try {
      run_.begin();
      while (!run_.ended()) {
        const bool started = run_.start();
        if (run_.take() || started) {
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
  void idle() {
    transport_.idle();
    constexpr int kRoundsBetweenLooksAtTheClock = 256;
    if (++idle_rounds_ == 1) {
      stuck_since_ = core::Clock::now();
    } else if (idle_rounds_ % kRoundsBetweenLooksAtTheClock == 0 && core::Clock::now() - stuck_since_ > timeout_) {
      const std::string wait = describe_wait();
      throw core::Error(core::Failure::timeout, wait + transport_.find_silent());
    }
  }

  std::string describe_wait() const {
    const auto name = [this](int rank) { return "rank " + std::to_string(transport_.number_of(rank)); };
    std::string text = name(transport_.rank()) + ": no message for " + std::to_string(timeout_.count()) + " ms";
    if (const int recv = run_.open_recv(); recv >= 0) {
      const MessageOp& op = program_.ops[at(recv)];
      return text + "; waits for " + std::to_string(op.bytes) + " bytes from " + name(op.peer);
    }
    if (const int send = run_.open_send(); send >= 0) {
      const MessageOp& op = program_.ops[at(send)];
      return text + "; " + std::to_string(op.bytes) + " bytes to " + name(op.peer) + " are not received";
    }
    return text;
  }

  const MessageProgram program_;
  transports::Transport& transport_;
  const std::chrono::milliseconds timeout_;
  TransportPort port_;
  MessageRun<TransportPort> run_;
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
