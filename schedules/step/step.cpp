#include "schedules/step/step.h"

#include <map>
#include <string>
#include <tuple>

#include "core/error.h"
#include "schedules/schedule.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {

std::string_view name_of(GroupKind kind) {
  constexpr std::array<std::string_view, kNumGroupKinds> kNames{
      "tensor",      "context",      "expert",        "data",       "replicas",      "embedding",    "world",
      "expert_data", "expert_group", "expert_groups", "tensor_row", "tensor_column", "tensor_depth", "secondary",
      "near",        "far"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Lane lane) {
  constexpr std::array<std::string_view, kNumLanes> kNames{"compute", "send",     "receive", "tensor", "gather",
                                                           "reduce",  "replicas", "copy",    "load",   "host"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string_view name_of(Comm comm) {
  constexpr std::array<std::string_view, 8> kNames{"none",       "all_reduce", "all_gather", "reduce_scatter",
                                                   "all_to_all", "shift",      "broadcast",  "reduce"};
  return kNames[static_cast<std::size_t>(comm)];
}

std::map<std::int32_t, std::set<std::int32_t>> microbatches_of(const RankStep& rank) {
  std::map<std::int32_t, std::set<std::int32_t>> microbatches;
  for (const Task& task : rank.tasks) {
    if (task.op == Op::forward) microbatches[task.stage].insert(task.microbatch);
  }
  return microbatches;
}

std::vector<HandOver> hand_overs_of(const Step& step, const RankStep& rank) {
  const auto microbatches = microbatches_of(rank);
  std::map<std::tuple<std::int32_t, std::int32_t, HandOver>, std::size_t> last;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (task.lane != Lane::compute || task.microbatch < 0) continue;
    const bool forward = task.op == Op::forward;
    if (!forward && task.op != Op::backward && task.op != Op::input_gradient) continue;
    const std::int32_t next = task.stage + (forward ? 1 : -1);
    const bool leaves_pipe = next < 0 || next / step.stages_per_pipe != task.stage / step.stages_per_pipe;
    if (leaves_pipe || !microbatches.contains(next)) continue;
    last[{task.stage, task.microbatch, forward ? HandOver::activations : HandOver::gradient}] = i;
  }
  std::vector<HandOver> hand_overs(rank.tasks.size(), HandOver::none);
  for (const auto& [key, task] : last) hand_overs[task] = std::get<HandOver>(key);
  return hand_overs;
}

GroupTable::GroupTable(const Step& step) : of_rank_(step.of_rank.size()) {
  for (auto& kinds : of_rank_) kinds.fill(-1);
  for (std::size_t g = 0; g < step.groups.size(); ++g) {
    for (const std::int32_t rank : step.groups[g].ranks) {
      of_rank_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step.groups[g].kind)] =
          static_cast<std::int32_t>(g);
    }
  }
}

std::int32_t GroupTable::find(std::int32_t rank, GroupKind kind) const {
  return of_rank_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(kind)];
}

std::int32_t GroupTable::of(std::int32_t rank, GroupKind kind, const std::string& who) const {
  const std::int32_t group = find(rank, kind);
  if (group >= 0) return group;
  throw core::usage_error(who + " needs a group of kind " + std::string(name_of(kind)) + ", and rank " +
                          std::to_string(rank) + " is in none; allowed: one group of each kind that is used, a rank");
}

namespace {

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

// The list without messages between stages and without actions on parameters.
std::vector<Action> computations_of(const std::vector<Action>& list) {
  std::vector<Action> kept;
  for (const Action& action : list) {
    if (is_compute(action.op) || is_of_eviction(action.op)) kept.push_back(action);
  }
  return kept;
}

// State of a rank's evictions while its list is lowered.
struct Evictions {
  std::uint32_t last_computation = kNoTask;
  std::vector<std::uint32_t> leaving = {};            // EVICTs since the last computation
  std::uint32_t left = kNoTask;                       // last EVICT before that computation
  std::map<std::size_t, std::uint32_t> fetched = {};  // by product_index() of the activations
};

class StepLowering {
 public:
  StepLowering(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends)
      : s_(schedule),
        costs_(costs),
        sends_(sends),
        tag_of_(num_products(schedule), -1),
        sent_kept_(schedule.of_rank.size()),
        received_kept_(schedule.of_rank.size()) {
    for (const auto& list : schedule.of_rank) lists_.push_back(computations_of(list));
  }

  Step lower() {
    for (std::size_t r = 0; r < lists_.size(); ++r) number_receives(r);
    Step step{.name = s_.name,
              .num_microbatches = s_.num_microbatches,
              .stages_per_pipe = s_.stages_per_pipe,
              .rank_of_stage = s_.rank_of_stage,
              .of_rank = {},
              .groups = {},
              .slices = s_.slices()};
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
        if (is_far(need, rank)) tag_of_[product_index(s_, need)] = next++;
      }
    }
    first_tag_of_evictions_.push_back(next);
  }

  // A rank either evicts or holds for its partner (check()) and receives one message for each of those actions; the
  // k-th has the k-th tag after the tags of messages between stages.
  std::int32_t tag_of_eviction(std::size_t receiver, std::int32_t k) const {
    return first_tag_of_evictions_[receiver] + k;
  }
  std::size_t other_of(std::size_t rank) const { return lists_.size() - 1 - rank; }

  RankStep lower_rank(std::size_t rank) {
    RankWriter out;
    std::uint32_t awaited = kNoTask;
    Evictions evictions;
    hold_for_other(out, rank);
    for (std::size_t begin = 0; begin < lists_[rank].size();) {
      if (is_of_eviction(lists_[rank][begin].op)) {
        move_kept(out, rank, lists_[rank][begin++], evictions);
        continue;
      }
      const std::span fused = std::span(lists_[rank]).subspan(begin, end_of_fused(lists_[rank], begin) - begin);
      edges_.clear();
      if (awaited != kNoTask) edges_.push_back(awaited);
      wait_for_moves(fused, evictions);
      for (const Action& a : fused) receive_for(out, rank, a);
      std::uint32_t last = 0;
      for (const Action& a : fused) {
        last = out.add({.op = a.op,
                        .stage = a.stage,
                        .microbatch = a.microbatch,
                        .amount = duration_of(a.op, costs_[work_index(a.stage, a.microbatch, s_.slices())])},
                       edges_);
        edges_.clear();
      }
      for (const Action& a : fused) send_from(out, a, last, awaited);
      evictions.last_computation = last;
      if (!evictions.leaving.empty()) evictions.left = evictions.leaving.back();
      evictions.leaving.clear();
      begin += fused.size();
    }
    return out.take();
  }

  Task kept_message(Op op, const Action& action, std::size_t rank, std::int32_t tag) const {
    const StageCosts& costs = costs_[work_index(action.stage, action.microbatch, s_.slices())];
    const bool is_question = op == Op::ask || op == Op::asked;
    return {.op = op,
            .lane = Lane::copy,
            .stage = action.stage,
            .microbatch = action.microbatch,
            .peer = static_cast<std::int32_t>(other_of(rank)),
            .tag = tag,
            .amount = is_question ? 0 : costs.kept_bytes};
  }

  void move_kept(RankWriter& out, std::size_t rank, const Action& action, Evictions& evictions) {
    std::vector<std::uint32_t> after;
    if (evictions.last_computation != kNoTask) after.push_back(evictions.last_computation);
    const std::int32_t tag = tag_of_eviction(other_of(rank), sent_kept_[rank]++);
    if (action.op == Op::evict) {
      evictions.leaving.push_back(out.add(kept_message(Op::evict, action, rank, tag), after));
      return;
    }
    if (evictions.left != kNoTask) after.push_back(evictions.left);
    out.add(kept_message(Op::ask, action, rank, tag), after);
    evictions.fetched[product_index(s_, {Product::activations, action.stage, action.microbatch})] =
        out.add(kept_message(Op::fetch, action, rank, tag_of_eviction(rank, received_kept_[rank]++)));
  }

  // Adds the edges that evictions and fetches give to computations.
  void wait_for_moves(std::span<const Action> fused, const Evictions& evictions) {
    if (evictions.left != kNoTask) edges_.push_back(evictions.left);
    for (const Action& a : fused) {
      if (a.op == Op::forward) continue;
      const auto found = evictions.fetched.find(product_index(s_, {Product::activations, a.stage, a.microbatch}));
      if (found != evictions.fetched.end()) edges_.push_back(found->second);
    }
  }

  void hold_for_other(RankWriter& out, std::size_t rank) {
    std::int32_t received = 0;
    std::int32_t sent = 0;
    for (const Action& action : lists_[other_of(rank)]) {
      if (!is_of_eviction(action.op)) continue;
      const Op receive = action.op == Op::evict ? Op::hold : Op::asked;
      const std::uint32_t got[] = {out.add(kept_message(receive, action, rank, tag_of_eviction(rank, received++)))};
      if (action.op == Op::evict) continue;
      out.add(kept_message(Op::yield, action, rank, tag_of_eviction(other_of(rank), sent++)), got);
    }
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
                                .tag = tag_of_[product_index(s_, need)],
                                .amount = bytes_of(need)}));
    }
  }

  void send_from(RankWriter& out, const Action& action, std::uint32_t after, std::uint32_t& awaited) {
    const auto receiver = receiver_of(s_, action);
    if (!receiver) return;
    const bool activations = action.op == Op::forward;
    const Need need{activations ? Product::activations : Product::gradient, action.stage, action.microbatch};
    const std::uint32_t edge[] = {after};
    const std::uint32_t sent = out.add({.op = activations ? Op::send_activations : Op::send_gradient,
                                        .lane = Lane::send,
                                        .stage = action.stage,
                                        .microbatch = action.microbatch,
                                        .peer = *receiver,
                                        .tag = tag_of_[product_index(s_, need)],
                                        .amount = bytes_of(need)},
                                       edge);
    if (sends_ == Sends::awaited) awaited = sent;
  }

  // The gradient of a stage's input is as large as the output of the previous stage.
  std::int64_t bytes_of(const Need& need) const {
    const std::int32_t stage = need.product == Product::activations ? need.stage : need.stage - 1;
    return costs_[work_index(stage, need.microbatch, s_.slices())].message_bytes;
  }

  const Schedule& s_;
  std::span<const StageCosts> costs_;
  Sends sends_;
  std::vector<std::vector<Action>> lists_;                 // computations and evictions
  std::vector<std::int32_t> tag_of_;                       // by product_index(), for products that cross ranks
  std::vector<std::int32_t> first_tag_of_evictions_ = {};  // per receiving rank
  std::vector<std::int32_t> sent_kept_;                    // per rank: EVICTs and ASKs so far
  std::vector<std::int32_t> received_kept_;                // per rank: FETCHes so far
  std::vector<std::uint32_t> edges_;
};

}  // namespace

Step lower(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends) {
  LOCKSTEP_CHECK(costs.size() == num_works(schedule), "costs of each stage and slice");
  return StepLowering(schedule, costs, sends).lower();
}

}  // namespace lockstep::schedules
