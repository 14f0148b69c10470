#include "schedules/passes/passes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {
namespace {

bool needs_parameters(const Task& task) {
  if (task.lane != Lane::compute) return false;
  return task.op == Op::forward || task.op == Op::backward || task.op == Op::input_gradient || task.op == Op::recompute;
}

// Consecutive units that a part needs: several if they begin with the same part.
struct UnitRange {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

// The units of each part of a stage, and of tiles.
struct StageUnits {
  std::vector<UnitRange> of_part = {};
  std::map<std::pair<std::int32_t, std::int32_t>, UnitRange> of_tile = {};  // by (part, tile)

  UnitRange of(std::int32_t part, std::int32_t tile) const {
    const auto found = of_tile.find({part, tile});
    if (found != of_tile.end()) return found->second;
    const auto p = static_cast<std::size_t>(part);
    return p < of_part.size() ? of_part[p] : UnitRange{};
  }
};

StageUnits units_of_parts(const std::vector<Unit>& units) {
  StageUnits result;
  std::vector<UnitRange>& of_part = result.of_part;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].tile >= 0) {
      result.of_tile[{units[u].first_part, units[u].tile}] = {static_cast<std::int32_t>(u), 1};
      continue;
    }
    const auto begin = static_cast<std::size_t>(units[u].first_part);
    const auto end = begin + static_cast<std::size_t>(units[u].num_parts);
    if (end > of_part.size()) of_part.resize(end);
    for (std::size_t part = begin; part < end; ++part) {
      if (of_part[part].count++ == 0) of_part[part].first = static_cast<std::int32_t>(u);
    }
  }
  return result;
}

bool continues(const UnitUse& use, const UnitUse& next) {
  return use.stage == next.stage && use.microbatch == next.microbatch && use.first_unit == next.first_unit &&
         use.num_units == next.num_units && (!use.backward || next.backward);
}

}  // namespace

std::vector<UnitUse> uses_of(const RankStep& rank, std::span<const std::vector<Unit>> units,
                             const ShardingOptions& options) {
  std::vector<StageUnits> of_parts(units.size());
  for (std::size_t s = 0; s < units.size(); ++s) of_parts[s] = units_of_parts(units[s]);
  std::vector<UnitUse> uses;
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (!needs_parameters(task)) continue;
    const auto stage = static_cast<std::size_t>(task.stage);
    UnitUse use{.stage = task.stage, .microbatch = task.microbatch, .first = i, .last = i};
    use.backward = task.op == Op::backward || task.op == Op::input_gradient;
    if (task.part < 0) {
      use.num_units = static_cast<std::int32_t>(units[stage].size());
    } else {
      const UnitRange range = of_parts[stage].of(task.part, options.tile_of(task));
      use.first_unit = range.first;
      use.num_units = range.count;
    }
    const bool any = use.num_units > 0;
    if (any && !uses.empty() && continues(uses.back(), use) &&
        (uses.back().backward == use.backward ||
         (!options.gather_again_after_recompute && rank.tasks[uses.back().first].op == Op::recompute))) {
      uses.back().last = i;
      uses.back().backward = use.backward;
    } else if (any) {
      uses.push_back(use);
    }
  }
  return uses;
}

namespace {

// The effect of a use on its units, and when its gather may start.
struct PlannedUse {
  UnitUse use = {};
  std::vector<std::int32_t> gathered = {};  // units to gather
  std::vector<std::int32_t> given_up = {};  // units to free afterwards
  std::uint32_t waits_for = kNoTask;        // old task of the compute lane
  std::uint32_t also_waits_for = kNoTask;   // old task: a reduction
  bool from_secondary = false;              // gathers from the secondary copy
};

// The later of two tasks in the rank's list.
std::uint32_t later_of(std::uint32_t a, std::uint32_t b) {
  if (a == kNoTask || b == kNoTask) return a == kNoTask ? b : a;
  return std::max(a, b);
}

std::uint32_t last_reduction_between(const RankStep& rank, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = end; i-- > begin;) {
    if (rank.tasks[i].op == Op::reduce_grad) return i;
  }
  return kNoTask;
}

bool gives_up_after(const UnitUse& use, Keep keep, const Unit& unit) {
  if (unit.held) return false;
  return keep == Keep::while_used || (keep == Keep::until_backward && (use.backward || !unit.in_backward));
}

class Planner {
 public:
  Planner(const RankStep& rank, std::span<const std::vector<Unit>> units, const ShardingOptions& options)
      : rank_(rank), units_(units), options_(options) {
    for (const auto& of_stage : units) {
      present_.emplace_back(of_stage.size(), false);
      last_use_.emplace_back(of_stage.size(), kNoTask);
    }
    for (const UnitUse& use : uses_of(rank, units, options)) add(use);
  }
  std::vector<PlannedUse> take() { return std::move(planned_); }

 private:
  void add(const UnitUse& use) {
    const auto stage = static_cast<std::size_t>(use.stage);
    PlannedUse planned{.use = use};
    planned.from_secondary = options_.secondary && rank_.tasks[use.first].op != Op::forward;
    const bool is_backward = use.backward && rank_.tasks[use.first].op != Op::recompute;
    for (std::int32_t u = use.first_unit; u < use.first_unit + use.num_units; ++u) {
      const auto unit = static_cast<std::size_t>(u);
      if (is_backward && !units_[stage][unit].in_backward) continue;
      if (!present_[stage][unit]) planned.gathered.push_back(u);
      planned.waits_for = later_of(planned.waits_for, last_use_[stage][unit]);
      const bool gives_up = gives_up_after(use, options_.keep, units_[stage][unit]);
      if (gives_up) planned.given_up.push_back(u);
      present_[stage][unit] = !gives_up;
      last_use_[stage][unit] = use.last;
    }
    if (!planned.gathered.empty()) wait_for_others(planned);
    planned_.push_back(planned);
  }

  void wait_for_others(PlannedUse& planned) {
    const auto in_flight = static_cast<std::size_t>(std::max(options_.in_flight, 1));
    if (gathered_uses_ends_.size() >= in_flight) {
      planned.waits_for = later_of(planned.waits_for, gathered_uses_ends_[gathered_uses_ends_.size() - in_flight]);
    }
    if (!options_.backward_prefetch && planned.use.backward && !planned_.empty()) {
      const std::uint32_t before = planned_.back().use.last;
      planned.waits_for = later_of(planned.waits_for, before);
      planned.also_waits_for = last_reduction_between(rank_, before, planned.use.first);
    }
    gathered_uses_ends_.push_back(planned.use.last);
  }

  const RankStep& rank_;
  std::span<const std::vector<Unit>> units_;
  const ShardingOptions& options_;
  std::vector<std::vector<bool>> present_;            // [stage][unit]
  std::vector<std::vector<std::uint32_t>> last_use_;  // [stage][unit]: last task of its last use
  std::vector<std::uint32_t> gathered_uses_ends_;
  std::vector<PlannedUse> planned_;
};

class Gathers {
 public:
  Gathers(const RankStep& old, std::int32_t rank, std::span<const std::vector<Unit>> units,
          std::vector<PlannedUse> planned, const GroupTable& groups)
      : old_(old),
        rank_(rank),
        units_(units),
        planned_(std::move(planned)),
        groups_(groups),
        out_(old),
        given_up_by_(old.tasks.size(), kNoTask) {
    gather_of_.resize(planned_.size(), kNoTask);
  }

  RankStep run() {
    std::size_t use = 0;
    gather_what_may_start(kNoTask);
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const bool in_use = use < planned_.size() && i >= planned_[use].use.first;
      out_.keep(i, in_use && i == planned_[use].use.first ? gather_of_[use] : kNoTask);
      if (in_use && i == planned_[use].use.last) {
        given_up_by_[i] = put_all(planned_[use], planned_[use].given_up, Op::reshard, {});
        ++use;
      }
      gather_what_may_start(i);
    }
    return out_.take();
  }

 private:
  // Gathers are in the order of their uses; each is written as soon as the tasks that it waits for are.
  void gather_what_may_start(std::uint32_t written) {
    for (; next_ < planned_.size(); ++next_) {
      const PlannedUse& planned = planned_[next_];
      if (planned.gathered.empty()) continue;
      const std::uint32_t last = later_of(planned.waits_for, planned.also_waits_for);
      if (last != kNoTask && (written == kNoTask || last > written)) return;
      edges_.clear();
      for (const std::uint32_t old : {planned.waits_for, planned.also_waits_for}) {
        if (old != kNoTask) edges_.push_back(given_up_by_[old] == kNoTask ? out_.new_of(old) : given_up_by_[old]);
      }
      gather_of_[next_] = put_all(planned, planned.gathered, Op::unshard, edges_);
    }
  }

  std::uint32_t put_all(const PlannedUse& planned, std::span<const std::int32_t> units, Op op,
                        std::span<const std::uint32_t> after) {
    const std::int32_t stage = planned.use.stage;
    std::uint32_t last = kNoTask;
    for (const std::int32_t u : units) {
      const Unit& unit = units_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(u)];
      Task task{.op = op, .stage = stage, .part = u};
      if (op == Op::unshard) {
        task.lane = Lane::gather;
        task.comm = Comm::all_gather;
        const bool from_secondary = planned.from_secondary && unit.group == GroupKind::data;
        task.peer = groups_.of(rank_, from_secondary ? GroupKind::secondary : unit.group,
                               "unit of stage " + std::to_string(stage));
        task.amount = unit.parameter_bytes;
      }
      last = out_.put(task, after);
      after = {};  // the lane's order is enough for the others
    }
    return last;
  }

  const RankStep& old_;
  std::int32_t rank_;
  std::span<const std::vector<Unit>> units_;
  std::vector<PlannedUse> planned_;
  const GroupTable& groups_;
  RankRewriter out_;
  std::size_t next_ = 0;                  // next use whose gather is to be written
  std::vector<std::uint32_t> gather_of_;  // new task of each use's gather
  // By old task that ends a use: new task of the RESHARD after it. A later gather of the unit waits for that.
  std::vector<std::uint32_t> given_up_by_;
  std::vector<std::uint32_t> edges_;
};

// Copies of a stage next to each other, so that ranks that share its shards gather it in the same order.
std::vector<std::size_t> stages_by_place(const Step& step) {
  std::vector<std::size_t> stages(step.rank_of_stage.size());
  std::iota(stages.begin(), stages.end(), std::size_t{0});
  const auto a_pipe = static_cast<std::size_t>(step.stages_per_pipe);
  std::stable_sort(stages.begin(), stages.end(),
                   [a_pipe](std::size_t a, std::size_t b) { return a % a_pipe < b % a_pipe; });
  return stages;
}

}  // namespace

std::vector<GradientBucket> buckets_of(std::span<const Unit> units) {
  std::vector<GradientBucket> buckets;
  for (std::size_t u = units.size(); u-- > 0;) {
    buckets.push_back({.bytes = units[u].gradient_bytes, .part = units[u].first_part, .group = units[u].group});
  }
  return buckets;
}

void shard_parameters(Step& step, std::span<const std::vector<Unit>> units, const ShardingOptions& options) {
  LOCKSTEP_CHECK(units.size() == step.rank_of_stage.size(), "units of each stage");
  LOCKSTEP_CHECK(!options.secondary || options.keep == Keep::while_used,
                 "a secondary copy is made as units are given up");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    of_rank = Gathers(of_rank, rank, units, Planner(of_rank, units, options).take(), groups).run();
  }
}

namespace {

class GathersAfterStep {
 public:
  GathersAfterStep(const RankStep& old, std::int32_t rank, std::span<const std::vector<Unit>> units,
                   const GroupTable& groups)
      : old_(old), rank_(rank), units_(units), groups_(groups), out_(old) {
    for (const auto& of_stage : units) gathered_.emplace_back(of_stage.size(), false);
  }

  RankStep run(const std::vector<std::size_t>& stages) {
    std::vector<std::uint32_t> after;
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const Task& task = old_.tasks[i];
      out_.keep(i);
      if (task.lane != Lane::compute) continue;
      after.assign(1, out_.new_of(i));
      if (task.op != Op::optimizer || task.part < 0) continue;
      const auto stage = static_cast<std::size_t>(task.stage);
      put(stage, units_[stage].size() - 1 - static_cast<std::size_t>(task.part), after);
    }
    for (const std::size_t s : stages) {
      for (std::size_t u = 0; u < units_[s].size(); ++u) {
        if (!gathered_[s][u]) put(s, u, after);
      }
    }
    return out_.take();
  }

 private:
  void put(std::size_t stage, std::size_t unit, const std::vector<std::uint32_t>& after) {
    gathered_[stage][unit] = true;
    out_.put({.op = Op::unshard,
              .lane = Lane::gather,
              .comm = Comm::all_gather,
              .stage = static_cast<std::int32_t>(stage),
              .part = static_cast<std::int32_t>(unit),
              .peer = groups_.of(rank_, units_[stage][unit].group, "unit of stage " + std::to_string(stage)),
              .amount = units_[stage][unit].parameter_bytes},
             after);
  }

  const RankStep& old_;
  std::int32_t rank_;
  std::span<const std::vector<Unit>> units_;
  const GroupTable& groups_;
  RankRewriter out_;
  std::vector<std::vector<bool>> gathered_;  // [stage][unit]
};

}  // namespace

void gather_after_step(Step& step, std::span<const std::vector<Unit>> units) {
  LOCKSTEP_CHECK(units.size() == step.rank_of_stage.size(), "units of each stage");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    std::vector<std::size_t> own = stages_by_place(step);
    std::erase_if(own, [&](std::size_t s) { return step.rank_of_stage[s] != rank; });
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    of_rank = GathersAfterStep(of_rank, rank, units, groups).run(own);
  }
}

}  // namespace lockstep::schedules
