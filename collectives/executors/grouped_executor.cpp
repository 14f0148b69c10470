#include "collectives/executors/executors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/executors/message_program.h"
#include "core/device.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::executors {
namespace {

class GroupedCollective final : public collectives::Collective {
 public:
  GroupedCollective(std::vector<MessageOp> ops, MessageRounds rounds, core::DeviceBlock scratch,
                    const collectives::Operation& operation, int num_ranks, GroupStream& stream)
      : ops_(std::move(ops)),
        rounds_(std::move(rounds)),
        scratch_(std::move(scratch)),
        operation_(operation),
        num_ranks_(num_ranks),
        elem_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
        stream_(stream) {
    for (const MessageRound& round : rounds_) {
      sends_.reserve(std::max(sends_.capacity(), round.sends.size()));
      receives_.reserve(std::max(receives_.capacity(), round.recvs.size()));
    }
  }

  void run(const void* input, void* output) override {
    // The input is only written where it is also the output.
    base_ = {static_cast<std::byte*>(const_cast<void*>(input)), static_cast<std::byte*>(output), scratch_.data()};
    for (const MessageRound& round : rounds_) {
      for (int op : round.work) combine(ops_[at(op)]);
      if (!round.sends.empty() || !round.recvs.empty()) exchange(round);
    }
  }

 private:
  void exchange(const MessageRound& round) {
    sends_.clear();
    receives_.clear();
    for (int index : round.sends) {
      const MessageOp& op = ops_[at(index)];
      sends_.push_back({op.peer, memory(op.src), at(op.bytes)});
    }
    for (int index : round.recvs) {
      const MessageOp& op = ops_[at(index)];
      receives_.push_back({op.peer, op.action == Action::recv ? memory(op.dst) : staging(op), at(op.bytes)});
    }
    stream_.exchange(sends_, receives_);
  }

  void combine(const MessageOp& op) {
    std::byte* to = memory(op.dst);
    if (op.action == Action::copy) {
      if (to != memory(op.src)) combine(op, to, memory(op.src), nullptr);
    } else if (op.action == Action::reduce) {
      combine(op, to, to, memory(op.src));
    } else {
      combine(op, to, memory(op.src), staging(op));
    }
  }

  void combine(const MessageOp& op, void* to, const void* a, const void* b) {
    const bool divides = b != nullptr && op.completes && operation_.op == core::ReduceOp::avg;
    stream_.combine({.to = to,
                     .a = a,
                     .b = b,
                     .count = op.bytes / elem_bytes_,
                     .dtype = operation_.dtype,
                     .op = operation_.op,
                     .average_over = divides ? num_ranks_ : 0});
  }

  std::byte* staging(const MessageOp& op) const { return scratch_.data() + op.staging_bytes; }
  std::byte* memory(const BufferAddress& place) const {
    return base_[static_cast<std::size_t>(place.buffer)] + place.offset_bytes;
  }

  std::vector<MessageOp> ops_;
  MessageRounds rounds_;
  core::DeviceBlock scratch_;
  collectives::Operation operation_;
  int num_ranks_;
  std::int64_t elem_bytes_;
  GroupStream& stream_;
  std::array<std::byte*, 3> base_{};          // [buffer], of one run
  std::vector<transports::PeerBytes> sends_;  // sends of one round
  std::vector<transports::PeerBytes> receives_;
};

}  // namespace

std::unique_ptr<collectives::Collective> make_grouped_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation, int rank,
                                                                 core::Device& device, GroupStream& stream,
                                                                 const GroupOptions& options) {
  constexpr std::int64_t kWhole = std::int64_t{1} << 50;  // groups need no segments: nothing else runs meanwhile
  LOCKSTEP_CHECK(plan.kind == operation.kind && rank >= 0 && rank < plan.num_ranks, "plan for another operation");
  const MessageLimits limits{.segment_bytes = kWhole, .recv_window = options.window, .send_window = options.window};
  std::vector<MessageProgram> programs = make_message_programs(usable_plan(plan, operation), operation, limits);
  std::optional<std::vector<MessageRounds>> rounds = find_message_rounds(programs, limits);
  LOCKSTEP_CHECK(rounds.has_value(), "a message program that ends has rounds");
  MessageProgram& mine = programs[at(rank)];
  core::DeviceBlock scratch;
  if (mine.scratch_bytes > 0) scratch = core::DeviceBlock(device, at(mine.scratch_bytes));
  return std::make_unique<GroupedCollective>(std::move(mine.ops), std::move((*rounds)[at(rank)]), std::move(scratch),
                                             operation, plan.num_ranks, stream);
}

}  // namespace lockstep::executors
