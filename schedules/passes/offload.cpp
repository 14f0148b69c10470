#include "schedules/passes/offload.h"

#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

// Actions of a rank for a microbatch in a stage without a break.
struct Work {
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  bool forward = false;
  bool takes_activations = false;  // B or I
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::int32_t loads_for = -1;  // the work whose activations are copied back from its start on
  bool offloads = false;
};

bool is_work(const Task& task) {
  return task.lane == Lane::compute && (is_compute(task.op) || task.op == Op::recompute);
}

std::vector<Work> work_of(const RankStep& rank) {
  std::vector<Work> all;
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (!is_work(task)) continue;
    const bool forward = task.op == Op::forward;
    const bool same = !all.empty() && all.back().stage == task.stage && all.back().microbatch == task.microbatch &&
                      all.back().forward == forward;
    if (!same) {
      all.push_back({.stage = task.stage, .microbatch = task.microbatch, .forward = forward, .first = i});
    }
    all.back().last = i;
    if (!forward && task.op != Op::weight_gradient) all.back().takes_activations = true;
  }
  return all;
}

void plan_copies(std::vector<Work>& all, std::int32_t ahead) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> forward_of;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const std::pair key(all[k].stage, all[k].microbatch);
    if (all[k].forward) forward_of[key] = k;
    if (!all[k].takes_activations) continue;
    const std::size_t made = forward_of.at(key);
    if (k - made <= static_cast<std::size_t>(ahead)) continue;
    all[made].offloads = true;
    all[k - static_cast<std::size_t>(ahead)].loads_for = static_cast<std::int32_t>(k);
  }
}

RankStep with_copies(const RankStep& old, std::span<const CopyCosts> costs, std::int32_t ahead) {
  std::vector<Work> all = work_of(old);
  plan_copies(all, ahead);
  RankRewriter out(old);
  std::vector<std::uint32_t> load_of(all.size(), kNoTask);
  std::uint32_t last_kernel = kNoTask;
  std::size_t k = 0;
  const auto copy = [&](const Work& of, Op op, std::int64_t ps) {
    const std::uint32_t edge[] = {last_kernel};
    return out.put({.op = op, .lane = Lane::copy, .stage = of.stage, .microbatch = of.microbatch, .amount = ps},
                   std::span<const std::uint32_t>(edge).first(last_kernel == kNoTask ? 0 : 1));
  };
  for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
    const bool at_work = k < all.size() && i >= all[k].first && is_work(old.tasks[i]);
    if (at_work && i == all[k].first && all[k].loads_for >= 0) {
      const Work& wanted = all[static_cast<std::size_t>(all[k].loads_for)];
      load_of[static_cast<std::size_t>(all[k].loads_for)] =
          copy(wanted, Op::load, costs[static_cast<std::size_t>(wanted.stage)].load_ps);
    }
    out.keep(i, at_work && i == all[k].first ? load_of[k] : kNoTask);
    if (old.tasks[i].lane == Lane::compute) last_kernel = out.new_of(i);
    if (!at_work || i != all[k].last) continue;
    if (all[k].offloads) copy(all[k], Op::offload, costs[static_cast<std::size_t>(all[k].stage)].offload_ps);
    ++k;
  }
  return out.take();
}

}  // namespace

void offload_activations(Step& step, std::span<const CopyCosts> costs, std::int32_t ahead) {
  LOCKSTEP_CHECK(costs.size() == step.rank_of_stage.size() && ahead >= 0, "costs of each stage");
  for (RankStep& rank : step.of_rank) rank = with_copies(rank, costs, ahead);
}

}  // namespace lockstep::schedules
