#include "simulator/predict/step_bound.h"

#include <algorithm>
#include <numeric>

namespace lockstep::simulator {
namespace {

using schedules::Action;
using schedules::Op;
using schedules::Schedule;

std::int64_t sum_of(const std::vector<schedules::Piece>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0},
                         [](std::int64_t sum, const schedules::Piece& piece) { return sum + piece.amount; });
}

std::int64_t issue_of(const std::vector<schedules::Piece>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0},
                         [](std::int64_t sum, const schedules::Piece& piece) { return sum + piece.issue_ps; });
}

struct StageTimes {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t input_gradient = 0;
  std::int64_t weight_gradient = 0;
  std::int64_t of(Op op) const {
    switch (op) {
      case Op::forward:
        return forward;
      case Op::backward:
        return backward;
      case Op::input_gradient:
        return input_gradient;
      default:
        return weight_gradient;
    }
  }
};

template <class Sum>
StageTimes times_of(const schedules::StageRecipe& recipe, const Sum& sum) {
  return {sum(recipe.forward), sum(recipe.backward), sum(recipe.input_gradient), sum(recipe.weight_gradient)};
}

class Bound {
 public:
  Bound(const Schedule& schedule, const std::vector<workload::StageWork>& works) : slices_(schedule.slices()) {
    for (const workload::StageWork& work : works) {
      times_.push_back(times_of(work.recipe, sum_of));
      issues_.push_back(times_of(work.recipe, issue_of));
    }
    const auto slices = static_cast<std::size_t>(slices_);
    for (std::size_t i = 0; i < times_.size(); ++i) {
      const bool first = schedule.is_first(static_cast<std::int32_t>(i / slices));
      before_.push_back(first ? 0 : before_[i - slices] + times_[i - slices].forward);
      // A full backward counts only with the part that every kind of backward contains.
      const std::int64_t least = first ? 0 : std::min(times_[i - slices].backward, times_[i - slices].input_gradient);
      after_.push_back(first ? 0 : after_[i - slices] + least);
    }
  }

  std::int64_t of_rank(const std::vector<Action>& list) const {
    if (list.empty()) return 0;
    std::int64_t now = before_[index_of(list.front())];
    std::int64_t bound = 0;
    std::int64_t issue = 0;  // host time, over all actions
    for (const Action& action : list) {
      if (!is_compute(action.op)) continue;
      const std::size_t i = index_of(action);
      now += times_[i].of(action.op);
      issue += issues_[i].of(action.op);
      if (action.op == Op::backward || action.op == Op::input_gradient) bound = std::max(bound, now + after_[i]);
    }
    return std::max({bound, now, issue});
  }

 private:
  std::size_t index_of(const Action& action) const {
    return schedules::work_index(action.stage, action.microbatch, slices_);
  }

  std::int32_t slices_;
  std::vector<StageTimes> times_;     // per stage and slice
  std::vector<StageTimes> issues_;    // host times, per stage and slice
  std::vector<std::int64_t> before_;  // forwards of earlier stages
  std::vector<std::int64_t> after_;   // backwards of earlier stages
};

}  // namespace

double step_bound_s(const Schedule& schedule, const std::vector<workload::StageWork>& works) {
  const Bound bound(schedule, works);
  std::int64_t longest = 0;
  for (const auto& list : schedule.of_rank) longest = std::max(longest, bound.of_rank(list));
  std::vector<std::int64_t> optimizer(schedule.of_rank.size());
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const auto rank = static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
    optimizer[rank] += works[schedules::work_index(stage, 0, schedule.slices())].optimizer_ps;
  }
  longest += *std::max_element(optimizer.begin(), optimizer.end());
  return static_cast<double>(longest) / 1e12;
}

}  // namespace lockstep::simulator
