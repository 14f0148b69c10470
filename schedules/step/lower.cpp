#include "schedules/step/lower.h"

#include "schedules/messages.h"
#include "schedules/needs.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// The computations of a list that run as one, from `begin`.
Range fused_from(const std::vector<Action>& list, std::size_t begin) {
  std::size_t end = begin + 1;
  while (list[end - 1].with_next && end < list.size()) ++end;
  return {begin, end};
}

std::int64_t duration_of(Op op, const StageCosts& costs) {
  switch (op) {
    case Op::forward:
      return costs.forward_ps;
    case Op::backward:
      return costs.input_gradient_ps + costs.weight_gradient_ps;
    case Op::input_gradient:
      return costs.input_gradient_ps;
    case Op::weight_gradient:
      return costs.weight_gradient_ps;
    default:
      return 0;
  }
}

std::vector<Action> computations_of(const std::vector<Action>& list) {
  std::vector<Action> kept;
  for (const Action& action : list) {
    if (is_compute(action.op)) kept.push_back(action);
  }
  return kept;
}

class Lowering {
 public:
  Lowering(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends)
      : s_(schedule), costs_(costs), sends_(sends), tag_of_(num_places(schedule), -1) {
    for (const auto& list : schedule.of_rank) lists_.push_back(computations_of(list));
  }

  Step lower() {
    for (std::size_t r = 0; r < lists_.size(); ++r) number_receives(r);
    Step step{.name = s_.name,
              .num_microbatches = s_.num_microbatches,
              .stages_a_pipe = s_.stages_a_pipe,
              .rank_of_stage = s_.rank_of_stage,
              .of_rank = {},
              .groups = {}};
    for (std::size_t r = 0; r < lists_.size(); ++r) step.of_rank.push_back(lower_rank(r));
    return step;
  }

 private:
  bool is_far(const Need& need, std::size_t rank) const {
    return s_.rank_of_stage[static_cast<std::size_t>(need.stage)] != static_cast<std::int32_t>(rank);
  }

  void number_receives(std::size_t rank) {
    std::int32_t next = 0;
    for (const Action& action : lists_[rank]) {
      for (const Need& need : needs_of(s_, action)) {
        if (is_far(need, rank)) tag_of_[place_of(s_, need)] = next++;
      }
    }
  }

  RankStep lower_rank(std::size_t rank) {
    RankWriter out;
    std::uint32_t awaited = kNone;
    for (std::size_t begin = 0; begin < lists_[rank].size();) {
      const Range fused = fused_from(lists_[rank], begin);
      edges_.clear();
      if (awaited != kNone) edges_.push_back(awaited);
      for (std::size_t i = fused.begin; i < fused.end; ++i) receive_for(out, rank, lists_[rank][i]);
      std::uint32_t last = 0;
      for (std::size_t i = fused.begin; i < fused.end; ++i) {
        const Action& a = lists_[rank][i];
        last = out.add({.op = a.op,
                        .stage = a.stage,
                        .microbatch = a.microbatch,
                        .amount = duration_of(a.op, costs_[static_cast<std::size_t>(a.stage)])},
                       edges_);
        edges_.clear();
      }
      for (std::size_t i = fused.begin; i < fused.end; ++i) send_from(out, lists_[rank][i], last, awaited);
      begin = fused.end;
    }
    return out.take();
  }

  void receive_for(RankWriter& out, std::size_t rank, const Action& action) {
    for (const Need& need : needs_of(s_, action)) {
      if (!is_far(need, rank)) continue;
      const bool activations = need.product == Product::activations;
      edges_.push_back(out.add({.op = activations ? Op::recv_activations : Op::recv_gradient,
                                .lane = Lane::receive,
                                .stage = action.stage,
                                .microbatch = action.microbatch,
                                .peer = s_.rank_of_stage[static_cast<std::size_t>(need.stage)],
                                .tag = tag_of_[place_of(s_, need)],
                                .amount = bytes_of(need)}));
    }
  }

  void send_from(RankWriter& out, const Action& action, std::uint32_t after, std::uint32_t& awaited) {
    const auto receiver = receiver_of(s_, action);
    if (!receiver) return;
    const bool activations = action.op == Op::forward;
    const Need made{activations ? Product::activations : Product::gradient, action.stage, action.microbatch};
    const std::uint32_t edge[] = {after};
    const std::uint32_t sent = out.add({.op = activations ? Op::send_activations : Op::send_gradient,
                                        .lane = Lane::send,
                                        .stage = action.stage,
                                        .microbatch = action.microbatch,
                                        .peer = *receiver,
                                        .tag = tag_of_[place_of(s_, made)],
                                        .amount = bytes_of(made)},
                                       edge);
    if (sends_ == Sends::awaited) awaited = sent;
  }

  // A gradient of a stage's input is as large as the output of the stage before.
  std::int64_t bytes_of(const Need& made) const {
    const std::int32_t stage = made.product == Product::activations ? made.stage : made.stage - 1;
    return costs_[static_cast<std::size_t>(stage)].message_bytes;
  }

  const Schedule& s_;
  std::span<const StageCosts> costs_;
  Sends sends_;
  std::vector<std::vector<Action>> lists_;  // computations alone
  std::vector<std::int32_t> tag_of_;        // of each product that crosses
  std::vector<std::uint32_t> edges_;
};

}  // namespace

Step lower(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends) {
  return Lowering(schedule, costs, sends).lower();
}

}  // namespace lockstep::schedules
