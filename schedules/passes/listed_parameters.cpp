#include "schedules/passes/listed_parameters.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/step/groups.h"
#include "schedules/step/rewrite.h"
#include "schedules/token.h"

namespace lockstep::schedules {
namespace {

class RankPlacement {
 public:
  RankPlacement(const RankStep& old, const std::vector<Action>& list, std::span<const StageParameters> sizes,
                std::int32_t rank, const GroupTable& groups)
      : old_(old), list_(list), sizes_(sizes), rank_(rank), groups_(groups), out_(old), stages_(sizes.size()) {
    for (const Action& action : list) {
      if (action.op == Op::unshard) stages_[static_cast<std::size_t>(action.stage)].sharded = true;
    }
  }

  RankStep run() {
    for (const Action& action : list_) {
      if (is_of_parameters(action.op)) put(action);
      if (is_compute(action.op)) keep_up_to(action);
    }
    while (next_ < old_.tasks.size()) out_.keep(next_++);
    return out_.take();
  }

 private:
  struct Stage {
    bool sharded = false;
    std::uint32_t gather = kNoTask;  // while it is there
  };

  // Old tasks through the one that is this computation, and what it sends.
  void keep_up_to(const Action& action) {
    while (next_ < old_.tasks.size()) {
      const std::uint32_t i = next_++;
      const Task& task = old_.tasks[i];
      if (task.lane != Lane::compute) {
        out_.keep(i);
        continue;
      }
      LOCKSTEP_CHECK(task.op == action.op && task.stage == action.stage && task.microbatch == action.microbatch,
                     "the step is of another schedule");
      const Stage& stage = stages_[static_cast<std::size_t>(action.stage)];
      const bool needs = stage.sharded && action.op != Op::weight_gradient;
      if (needs && stage.gather == kNoTask) refuse(action, "is not gathered");
      last_kernel_ = out_.keep(i, needs ? stage.gather : kNoTask);
      break;
    }
    while (next_ < old_.tasks.size() && is_send(old_.tasks[next_].op)) out_.keep(next_++);
  }

  void put(const Action& action) {
    Stage& stage = stages_[static_cast<std::size_t>(action.stage)];
    const StageParameters& sizes = sizes_[static_cast<std::size_t>(action.stage)];
    Task task{.op = action.op, .stage = action.stage, .microbatch = action.microbatch, .part = 0};
    if (action.op == Op::reshard) {
      if (stage.gather == kNoTask) refuse(action, "is not gathered");
      stage.gather = kNoTask;
      last_kernel_ = out_.put(task);
      return;
    }
    const bool gathers = action.op == Op::unshard;
    if (gathers && stage.gather != kNoTask) refuse(action, "is gathered already");
    task.lane = gathers ? Lane::gather : Lane::reduce;
    task.comm = gathers ? Comm::all_gather : Comm::reduce_scatter;
    task.peer = groups_.of(rank_, GroupKind::data, token_of(action));
    task.amount = gathers ? sizes.parameter_bytes : sizes.gradient_bytes;
    const std::uint32_t edge[] = {last_kernel_};
    const std::uint32_t made = out_.put(task, std::span(edge).first(last_kernel_ == kNoTask ? 0 : 1));
    if (gathers) stage.gather = made;
  }

  [[noreturn]] void refuse(const Action& action, const std::string& what) const {
    throw core::usage_error("rank " + std::to_string(rank_) + ", " + token_of(action) + ": stage " +
                            std::to_string(action.stage) + " " + what +
                            "; allowed: UNSHARD before its use and RESHARD after it, in turn");
  }

  const RankStep& old_;
  const std::vector<Action>& list_;
  std::span<const StageParameters> sizes_;
  std::int32_t rank_;
  const GroupTable& groups_;
  RankRewriter out_;
  std::vector<Stage> stages_;
  std::uint32_t next_ = 0;
  std::uint32_t last_kernel_ = kNoTask;
};

}  // namespace

void place_listed_parameters(Step& step, const Schedule& schedule, std::span<const StageParameters> sizes) {
  LOCKSTEP_CHECK(sizes.size() == step.rank_of_stage.size(), "sizes of each stage");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    step.of_rank[r] = RankPlacement(step.of_rank[r], schedule.of_rank[r], sizes, rank, groups).run();
  }
}

}  // namespace lockstep::schedules
