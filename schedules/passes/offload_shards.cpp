#include "schedules/passes/offload_shards.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

using StagePart = std::pair<std::int32_t, std::int32_t>;

bool reduces_bucket(const Task& task) {
  return task.op == Op::reduce_grad && task.part >= 0;
}

class GradientCopies {
 public:
  GradientCopies(const RankStep& old, const GradientCopyTime& time, std::int32_t ahead)
      : old_(old), time_(time), ahead_(static_cast<std::size_t>(ahead)), out_(old) {
    over_replicas_ = std::any_of(old.tasks.begin(), old.tasks.end(),
                                 [](const Task& task) { return reduces_bucket(task) && task.lane == Lane::replicas; });
  }

  RankStep run() {
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const Task& task = old_.tasks[i];
      if (reduces_bucket(task) && task.lane == Lane::reduce) {
        const auto before = copy_of_.find({task.stage, task.part});
        out_.keep(i, before == copy_of_.end() ? kNoTask : before->second);
      } else if (task.lane == Lane::compute) {
        out_.keep(i, std::exchange(kernel_waits_for_, kNoTask));
      } else {
        out_.keep(i);
      }
      if (reduces_bucket(task) && (task.lane == Lane::replicas) == over_replicas_) copy(task, i);
    }
    return out_.take();
  }

 private:
  void copy(const Task& reduction, std::uint32_t old) {
    const StagePart bucket(reduction.stage, reduction.part);
    const std::uint32_t after[] = {out_.new_of(old)};
    const bool adds = copy_of_.contains(bucket);
    copies_.push_back(out_.put({.op = Op::offload,
                                .lane = Lane::copy,
                                .what = static_cast<std::uint32_t>(Copied::gradients),
                                .stage = reduction.stage,
                                .microbatch = reduction.microbatch,
                                .part = reduction.part,
                                .amount = time_(reduction.stage, reduction.part, adds)},
                               after));
    copy_of_[bucket] = copies_.back();
    if (copies_.size() > ahead_ + 1) kernel_waits_for_ = copies_[copies_.size() - ahead_ - 2];
  }

  const RankStep& old_;
  const GradientCopyTime& time_;
  const std::size_t ahead_;
  RankRewriter out_;
  bool over_replicas_ = false;
  std::vector<std::uint32_t> copies_;           // new indices
  std::map<StagePart, std::uint32_t> copy_of_;  // last copy of each bucket
  std::uint32_t kernel_waits_for_ = kNoTask;
};

class ParameterCopies {
 public:
  ParameterCopies(const RankStep& old, const ParameterCopyTime& time, std::int32_t ahead)
      : old_(old), time_(time), out_(old) {
    std::map<StagePart, std::size_t> last_of_unit;  // last gather of each unit
    for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
      const Task& task = old.tasks[i];
      if (task.op != Op::unshard) continue;
      const std::size_t gather = gathers_.size();
      const auto before = last_of_unit.find({task.stage, task.part});
      std::size_t behind = gather > static_cast<std::size_t>(ahead) ? gather - static_cast<std::size_t>(ahead) : 0;
      if (before != last_of_unit.end()) behind = std::max(behind, before->second + 1);
      gathers_.push_back({.task = i, .loads_behind = behind});
      last_of_unit[{task.stage, task.part}] = gather;
    }
  }

  RankStep run() {
    put_loads(0);
    std::size_t gather = 0;
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const bool gathers = gather < gathers_.size() && gathers_[gather].task == i;
      out_.keep(i, gathers ? loads_[gather] : kNoTask);
      if (gathers) put_loads(++gather);
    }
    return out_.take();
  }

 private:
  struct Gather {
    std::uint32_t task = 0;
    std::size_t loads_behind = 0;  // number of gathers written before its load
  };

  // Loads are in the order of their gathers.
  void put_loads(std::size_t gathers_written) {
    while (loads_.size() < gathers_.size() && gathers_[loads_.size()].loads_behind <= gathers_written) {
      const Gather& wanted = gathers_[loads_.size()];
      const Task& task = old_.tasks[wanted.task];
      std::vector<std::uint32_t> after;
      if (wanted.loads_behind > 0) after.push_back(out_.new_of(gathers_[wanted.loads_behind - 1].task));
      loads_.push_back(out_.put({.op = Op::load,
                                 .lane = Lane::load,
                                 .what = static_cast<std::uint32_t>(Copied::parameters),
                                 .stage = task.stage,
                                 .part = task.part,
                                 .amount = time_(task.stage, task.part)},
                                after));
    }
  }

  const RankStep& old_;
  const ParameterCopyTime& time_;
  RankRewriter out_;
  std::vector<Gather> gathers_;
  std::vector<std::uint32_t> loads_;  // new index of each gather's load
};

}  // namespace

void offload_gradients(Step& step, const GradientCopyTime& time, std::int32_t ahead) {
  LOCKSTEP_CHECK(ahead >= 0, "a number of copies ahead");
  for (RankStep& rank : step.of_rank) rank = GradientCopies(rank, time, ahead).run();
}

void load_parameters(Step& step, const ParameterCopyTime& time, std::int32_t ahead) {
  LOCKSTEP_CHECK(ahead >= 0, "a number of copies ahead");
  for (RankStep& rank : step.of_rank) rank = ParameterCopies(rank, time, ahead).run();
}

}  // namespace lockstep::schedules
