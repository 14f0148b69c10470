#include "schedules/step/step_text.h"

#include <map>
#include <set>
#include <tuple>

#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

class ListedRank {
 public:
  explicit ListedRank(const RankStep& rank) {
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
      if (rank.tasks[i].op == Op::reduce_grad) last_reduction_[rank.tasks[i].stage] = i;
    }
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) add(i, rank.tasks[i]);
  }
  std::vector<Action> take() { return std::move(list_); }

 private:
  void add(std::size_t i, const Task& task) {
    switch (task.op) {
      case Op::unshard:
        if (gathered_[task.stage]++ == 0) list_.push_back({task.op, task.stage, kNoMicrobatch});
        return;
      case Op::reshard:
        if (--gathered_[task.stage] == 0) list_.push_back({task.op, task.stage, kNoMicrobatch});
        return;
      case Op::reduce_grad:
        if (task.stage >= 0 && last_reduction_[task.stage] == i) list_.push_back({task.op, task.stage, kNoMicrobatch});
        return;
      default:
        break;
    }
    if (!has_text(task.op) || !seen_.insert({task.op, task.stage, task.microbatch}).second) return;
    list_.push_back({task.op, task.stage, task.microbatch});
  }

  std::map<std::int32_t, std::size_t> last_reduction_;  // of each stage
  std::map<std::int32_t, int> gathered_;                // units of each stage
  std::set<std::tuple<Op, std::int32_t, std::int32_t>> seen_;
  std::vector<Action> list_;
};

}  // namespace

Schedule schedule_of(const Step& step) {
  Schedule schedule{.name = step.name,
                    .num_microbatches = step.num_microbatches,
                    .stages_a_pipe = step.stages_a_pipe,
                    .rank_of_stage = step.rank_of_stage};
  for (const RankStep& rank : step.of_rank) schedule.of_rank.push_back(ListedRank(rank).take());
  return schedule;
}

std::string step_to_csv(const Step& step) {
  return to_csv(schedule_of(step));
}

}  // namespace lockstep::schedules
