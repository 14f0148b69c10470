#include "schedules/passes/optimizer.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/step/groups.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kNormBytes = 4;  // the sum of squares, as a float

}  // namespace

void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier) {
  LOCKSTEP_CHECK(ps_of_rank.size() == step.of_rank.size(), "a duration for each rank");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    std::vector<std::uint32_t> ends = last_of_lanes(of_rank, {Lane::compute, Lane::reduce, Lane::replicas});
    const std::vector<std::uint32_t> over_replicas = last_of_lanes(of_rank, {Lane::replicas});
    RankWriter out(std::move(of_rank));
    if (barrier == Barrier::norm) {
      ends = {out.add({.op = Op::optimizer,
                       .lane = Lane::reduce,
                       .comm = Comm::all_reduce,
                       .peer = groups.of(rank, GroupKind::world, "the norm of the gradients"),
                       .amount = kNormBytes},
                      ends)};
      // The norm waits for these, too; but so one sees what the update waits for (schedules/step/breakdown.h).
      ends.insert(ends.end(), over_replicas.begin(), over_replicas.end());
    }
    out.add({.op = Op::optimizer, .amount = ps_of_rank[static_cast<std::size_t>(rank)]}, ends);
    of_rank = out.take();
  }
}

namespace {

class RankUpdates {
 public:
  RankUpdates(const RankStep& old, std::span<const std::int64_t> ps_of_stage)
      : old_(old), ps_of_stage_(ps_of_stage), out_(old) {
    for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
      const Task& task = old.tasks[i];
      const bool gives = task.op == Op::backward || task.op == Op::weight_gradient;
      if (gives && task.lane == Lane::compute) last_gradient_[{task.stage, task.microbatch}] = i;
    }
  }

  RankStep run() {
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const Task& task = old_.tasks[i];
      if (task.lane == Lane::compute) put_due();
      out_.keep(i);
      const std::pair key{task.stage, task.microbatch};
      if (task.op == Op::reduce_grad) last_reduction_[key] = out_.new_of(i);
      const auto last = last_gradient_.find(key);
      if (last != last_gradient_.end() && last->second == i) due_.push_back(key);
    }
    put_due();
    return out_.take();
  }

 private:
  using StageMicrobatch = std::pair<std::int32_t, std::int32_t>;

  // Behind messages and reductions, which others wait for.
  void put_due() {
    for (const StageMicrobatch& key : due_) {
      std::vector<std::uint32_t> after;
      const auto reduction = last_reduction_.find(key);
      if (reduction != last_reduction_.end()) after.push_back(reduction->second);
      out_.put({.op = Op::optimizer,
                .stage = key.first,
                .microbatch = key.second,
                .amount = ps_of_stage_[static_cast<std::size_t>(key.first)]},
               after);
    }
    due_.clear();
  }

  const RankStep& old_;
  std::span<const std::int64_t> ps_of_stage_;
  RankRewriter out_;
  std::map<StageMicrobatch, std::uint32_t> last_gradient_;   // as in old_
  std::map<StageMicrobatch, std::uint32_t> last_reduction_;  // as written
  std::vector<StageMicrobatch> due_;
};

}  // namespace

void add_updates(Step& step, std::span<const std::int64_t> ps_of_stage) {
  LOCKSTEP_CHECK(ps_of_stage.size() == step.rank_of_stage.size(), "a duration for each stage");
  for (RankStep& rank : step.of_rank) rank = RankUpdates(rank, ps_of_stage).run();
}

}  // namespace lockstep::schedules
