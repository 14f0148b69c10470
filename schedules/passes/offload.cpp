#include "schedules/passes/passes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

constexpr std::array kLanes{Lane::compute, Lane::tensor};  // lanes of a part's actions
using LaneTasks = std::array<std::uint32_t, kLanes.size()>;

// An uninterrupted run of a part's actions for one microbatch.
struct KernelWork {
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  std::int32_t part = -1;
  bool forward = false;
  bool is_split = false;  // W of a backward whose I came before: its activations are already loaded
  LaneTasks first = {kNoTask, kNoTask};
  LaneTasks last = {kNoTask, kNoTask};
  std::optional<std::size_t> offloads = {};  // index of the work offloaded before this one begins
  std::optional<std::size_t> loads = {};     // index of the work loaded for

  std::uint32_t begin() const { return std::min(first[0], first[1]); }
  bool is_of(const Task& task) const {
    return stage == task.stage && microbatch == task.microbatch && part == task.part;
  }
};

bool is_kernel(const Task& task) {
  return task.lane == Lane::compute && (is_compute(task.op) || task.op == Op::recompute);
}
bool is_exchange(const Task& task) {
  return task.lane == Lane::tensor && task.op == Op::layer_collective;
}

class WorkList {
 public:
  std::vector<KernelWork> of(const RankStep& rank) {
    std::vector<std::uint32_t> exchanges;  // collectives since the last kernel
    for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
      const Task& task = rank.tasks[i];
      if (is_exchange(task)) exchanges.push_back(i);
      if (!is_kernel(task)) continue;
      const bool forward = task.op == Op::forward;
      // A collective belongs to the work of the kernel after it if that has the same part, else to that of the kernel
      // before.
      for (const std::uint32_t exchange : exchanges) {
        const Task& between = rank.tasks[exchange];
        const bool is_before =
            between.stage == task.stage && between.microbatch == task.microbatch && between.part == task.part;
        if (is_before || work_.empty() || !work_.back().is_of(between)) begin(between, forward);
        add(exchange, 1);
      }
      exchanges.clear();
      begin(task, forward);
      add(i, 0);
      if (task.op == Op::weight_gradient && work_.back().first[0] == i) work_.back().is_split = true;
    }
    for (const std::uint32_t exchange : exchanges) {
      if (!work_.empty() && work_.back().is_of(rank.tasks[exchange])) add(exchange, 1);
    }
    return std::move(work_);
  }

 private:
  void begin(const Task& task, bool forward) {
    if (!work_.empty() && work_.back().is_of(task) && work_.back().forward == forward) return;
    work_.push_back({.stage = task.stage, .microbatch = task.microbatch, .part = task.part, .forward = forward});
  }
  void add(std::uint32_t task, std::size_t lane) {
    KernelWork& work = work_.back();
    if (work.first[lane] == kNoTask) work.first[lane] = task;
    work.last[lane] = task;
  }

  std::vector<KernelWork> work_;
};

class RankCopies {
 public:
  RankCopies(const RankStep& old, std::span<const std::vector<CopyCosts>> parts, std::int32_t ahead)
      : old_(old), parts_(parts), ahead_(static_cast<std::size_t>(ahead)), work_(WorkList().of(old)), out_(old) {
    plan();
  }

  RankStep run() {
    std::size_t next = 0;  // index of the next work
    LaneTasks last = {kNoTask, kNoTask};
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      if (next < work_.size() && work_[next].begin() == i) put_copies(work_[next++], last);
      keep(i);
      for (std::size_t lane = 0; lane < kLanes.size(); ++lane) {
        if (old_.tasks[i].lane == kLanes[lane]) last[lane] = out_.new_of(i);
      }
    }
    return out_.take();
  }

 private:
  const CopyCosts& costs_of(const KernelWork& work) const {
    const std::vector<CopyCosts>& stage = parts_[static_cast<std::size_t>(work.stage)];
    return stage.at(static_cast<std::size_t>(std::max(work.part, 0)));
  }

  void plan() {
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::size_t> made_by;
    for (std::size_t k = 0; k < work_.size(); ++k) {
      const std::tuple key(work_[k].stage, work_[k].microbatch, work_[k].part);
      if (work_[k].forward) made_by[key] = k;
      const auto found = made_by.find(key);
      if (work_[k].forward || work_[k].is_split || found == made_by.end()) continue;
      const std::size_t producer = found->second;
      made_by.erase(found);  // on the device from now on
      if (k - producer <= 2 * ahead_ || costs_of(work_[k]).bytes == 0) continue;
      work_[producer + 1 + ahead_].offloads = producer;
      work_[k - ahead_].loads = k;
    }
  }

  // Writes the copies before work begins and what it waits for. `last`: last tasks of the lanes so far.
  void put_copies(const KernelWork& work, const LaneTasks& last) {
    waits_ = {};
    if (work.offloads) {
      const KernelWork& of = work_[*work.offloads];
      LaneTasks ends = {kNoTask, kNoTask};
      for (std::size_t lane = 0; lane < kLanes.size(); ++lane) {
        if (of.last[lane] != kNoTask) ends[lane] = out_.new_of(of.last[lane]);
      }
      waits_.push_back(copy(of, Op::offload, costs_of(of).offload_ps, ends));
    }
    if (work.loads) {
      const KernelWork& of = work_[*work.loads];
      load_of_[*work.loads] = copy(of, Op::load, costs_of(of).load_ps, last);
    }
    const auto load = load_of_.find(static_cast<std::size_t>(&work - work_.data()));
    if (load != load_of_.end()) waits_.push_back(load->second);
    for (const std::uint32_t first : work.first) {
      if (first != kNoTask && !waits_.empty()) waits_of_[first] = waits_;
    }
  }

  std::uint32_t copy(const KernelWork& of, Op op, std::int64_t ps, const LaneTasks& after) {
    edges_.clear();
    for (const std::uint32_t task : after) {
      if (task != kNoTask) edges_.push_back(task);
    }
    return out_.put({.op = op,
                     .lane = Lane::copy,
                     .what = static_cast<std::uint32_t>(Copied::activations),
                     .stage = of.stage,
                     .microbatch = of.microbatch,
                     .part = of.part,
                     .amount = ps},
                    edges_);
  }

  void keep(std::uint32_t i) {
    const auto waits = waits_of_.find(i);
    if (waits == waits_of_.end()) {
      out_.keep(i);
      return;
    }
    edges_ = waits->second;
    out_.add_edges_of(i, edges_);
    out_.replace(i, out_.put(old_.tasks[i], edges_));
    waits_of_.erase(waits);
  }

  const RankStep& old_;
  std::span<const std::vector<CopyCosts>> parts_;
  const std::size_t ahead_;
  std::vector<KernelWork> work_;
  RankRewriter out_;
  std::map<std::size_t, std::uint32_t> load_of_;                  // by work
  std::map<std::uint32_t, std::vector<std::uint32_t>> waits_of_;  // by later task: further tasks that it waits for
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> edges_;
};

}  // namespace

void offload_activations(Step& step, std::span<const std::vector<CopyCosts>> parts, std::int32_t ahead) {
  LOCKSTEP_CHECK(parts.size() == step.rank_of_stage.size() && ahead >= 0, "costs of each stage");
  for (RankStep& rank : step.of_rank) rank = RankCopies(rank, parts, ahead).run();
}

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
      std::size_t place = gather > static_cast<std::size_t>(ahead) ? gather - static_cast<std::size_t>(ahead) : 0;
      if (before != last_of_unit.end()) place = std::max(place, before->second + 1);
      gathers_.push_back({.task = i, .loads_before = place});
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
    std::size_t loads_before = 0;  // number of gathers written before its load
  };

  // Loads are in the order of their gathers.
  void put_loads(std::size_t gathers_written) {
    while (loads_.size() < gathers_.size() && gathers_[loads_.size()].loads_before <= gathers_written) {
      const Gather& wanted = gathers_[loads_.size()];
      const Task& task = old_.tasks[wanted.task];
      std::vector<std::uint32_t> after;
      if (wanted.loads_before > 0) after.push_back(out_.new_of(gathers_[wanted.loads_before - 1].task));
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
