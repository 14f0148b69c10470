#include "simulator/predict/clocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <queue>
#include <sstream>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/options.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::Lane;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;

constexpr double kPsPerSecond = 1e12;

// ---- Times of tasks from their dependency graph.

// One node per task, and one per collective of a group; edges lead to dependents.
class StepGraph {
 public:
  StepGraph(const Step& step, const StepTimeline& timeline) {
    for (const auto& rank : step.of_rank) {
      first_of_rank_.push_back(nodes_.size());
      nodes_.resize(nodes_.size() + rank.tasks.size());
    }
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> sent;  // by receiver and tag
    for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
      for (std::uint32_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
        const Task& task = step.of_rank[r].tasks[i];
        if (schedules::is_send(task.op)) sent[{task.peer, task.tag}] = node(r, i);
        if (task.lane == Lane::compute || task.comm != Comm::none) continue;
        nodes_[node(r, i)].ps = timeline[r][i].end_ps - timeline[r][i].start_ps;
      }
    }
    for (std::size_t r = 0; r < step.of_rank.size(); ++r) add_rank(step, timeline, r, sent);
    sort();
  }

  std::size_t node(std::size_t rank, std::uint32_t task) const { return first_of_rank_[rank] + task; }
  void set(std::size_t node, std::int64_t ps) { nodes_[node].ps = ps; }

  std::int64_t makespan() {
    std::int64_t end = 0;
    start_.assign(nodes_.size(), 0);
    for (const std::size_t n : order_) {
      const std::int64_t ends = start_[n] + nodes_[n].ps;
      end = std::max(end, ends);
      for (const Edge& edge : nodes_[n].next) {
        start_[edge.to] = std::max(start_[edge.to], edge.from_start ? start_[n] : ends);
      }
    }
    return end;
  }

 private:
  struct Edge {
    std::size_t to = 0;
    bool from_start = false;
  };
  struct TaskNode {
    std::int64_t ps = 0;
    std::vector<Edge> next = {};
    std::size_t waits_for = 0;
  };

  void add(std::size_t from, std::size_t to, bool from_start = false) {
    nodes_[from].next.push_back({to, from_start});
    ++nodes_[to].waits_for;
  }

  void add_rank(const Step& step, const StepTimeline& timeline, std::size_t r,
                const std::map<std::pair<std::int32_t, std::int32_t>, std::size_t>& sent) {
    std::array<std::size_t, schedules::kNumLanes> last;
    last.fill(SIZE_MAX);
    std::map<std::pair<std::int32_t, Lane>, std::int32_t> met;
    for (std::uint32_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      std::size_t& before = last[static_cast<std::size_t>(task.lane)];
      if (before != SIZE_MAX) add(before, node(r, i));
      before = node(r, i);
      for (const std::uint32_t earlier : step.of_rank[r].after_of(task)) add(node(r, earlier), node(r, i));
      // A message moves from its start at the sender, independently of its receiver.
      if (schedules::is_recv(task.op)) add(sent.at({static_cast<std::int32_t>(r), task.tag}), node(r, i), true);
      if (task.comm == Comm::none) continue;
      const std::int32_t number = met[{task.peer, task.lane}]++;
      const auto [meeting, is_first] = meetings_.try_emplace({task.peer, task.lane, number}, nodes_.size());
      if (is_first) nodes_.emplace_back();
      nodes_[meeting->second].ps = timeline[r][i].end_ps - timeline[r][i].start_ps;
      // All members have to arrive, and each member's next tasks wait for the collective's node.
      add(node(r, i), meeting->second);
      before = meeting->second;
      ends_[node(r, i)] = meeting->second;
    }
  }

  void sort() {
    // Dependents of a member's task wait for the collective's node.
    for (const auto& [task, meeting] : ends_) {
      for (const Edge& edge : std::vector<Edge>(nodes_[task].next)) {
        if (edge.to != meeting) add(meeting, edge.to);
      }
    }
    std::vector<std::size_t> left;
    for (const TaskNode& node : nodes_) left.push_back(node.waits_for);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (left[n] == 0) order_.push_back(n);
    }
    for (std::size_t at = 0; at < order_.size(); ++at) {
      for (const Edge& edge : nodes_[order_[at]].next) {
        if (--left[edge.to] == 0) order_.push_back(edge.to);
      }
    }
    LOCKSTEP_CHECK(order_.size() == nodes_.size(), "a step without a circle of waits");
  }

  std::vector<std::size_t> first_of_rank_;
  std::vector<TaskNode> nodes_;
  std::map<std::tuple<std::int32_t, Lane, std::int32_t>, std::size_t> meetings_;
  std::map<std::size_t, std::size_t> ends_;  // node of the collective, by each member's task
  std::vector<std::size_t> order_;
  std::vector<std::int64_t> start_;
};

// ---- Units that have a clock.

std::vector<Clocked> clocked_of(const Step& step, ClockOf of, double mhz) {
  std::vector<Clocked> all;
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    std::map<std::tuple<std::int32_t, std::int32_t, bool, bool>, std::size_t> known;
    for (std::uint32_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (task.lane != Lane::compute || task.amount == 0) continue;
      const bool forward = task.op == schedules::Op::forward;
      const bool weights = task.op == schedules::Op::weight_gradient;
      const auto key = of == ClockOf::stage ? std::tuple(0, 0, false, false)
                                            : std::tuple(task.stage, task.microbatch, forward, weights);
      const auto [place, is_new] = known.try_emplace(key, all.size());
      if (is_new) {
        all.push_back({static_cast<std::int32_t>(r), task.op, task.stage, task.microbatch, mhz});
      }
      all[place->second].tasks.push_back(i);
      all[place->second].top_ps += task.amount;
    }
  }
  return all;
}

double busy_joules(const Clocked& unit, const PowerCurve& curve, double mhz) {
  const double seconds = static_cast<double>(unit.top_ps) * curve.slowdown(mhz) / kPsPerSecond;
  return seconds * (curve.watts(mhz) - curve.idle_watts);  // above idle power
}

double joules_of(const ClockChoice& choice, const PowerCurve& curve, std::int32_t ranks) {
  double joules = static_cast<double>(choice.makespan_ps) / kPsPerSecond * curve.idle_watts * ranks;
  for (const Clocked& unit : choice.clocked) joules += busy_joules(unit, curve, unit.mhz);
  return joules;
}

std::int64_t slowed_ps(std::int64_t ps, const PowerCurve& curve, double mhz) {
  return std::llround(static_cast<double>(ps) * curve.slowdown(mhz));
}

class ClockLowering {
 public:
  ClockLowering(const Step& step, const StepTimeline& timeline, const PowerCurve& curve, ClockOf of)
      : step_(step), curve_(curve), graph_(step, timeline), clocked_(clocked_of(step, of, curve.top_mhz)) {
    for (const Clocked& unit : clocked_) set(unit, curve_.top_mhz);
  }

  std::int64_t makespan() { return graph_.makespan(); }

  std::vector<Clocked> until(std::int64_t target_ps) {
    for (std::size_t k = 0; k < clocked_.size(); ++k) push(k);
    while (!next_.empty()) {
      const auto [gain, k] = next_.top();
      next_.pop();
      Clocked& unit = clocked_[k];
      const double lower = unit.mhz - curve_.step_mhz;
      set(unit, lower);
      if (graph_.makespan() > target_ps) {
        set(unit, unit.mhz);  // permanently: others only grow later
        continue;
      }
      unit.mhz = lower;
      push(k);
    }
    return clocked_;
  }

 private:
  void set(const Clocked& unit, double mhz) {
    const auto rank = static_cast<std::size_t>(unit.rank);
    for (const std::uint32_t task : unit.tasks) {
      graph_.set(graph_.node(rank, task), slowed_ps(step_.of_rank[rank].tasks[task].amount, curve_, mhz));
    }
  }

  // Sorted by the joules that the next lower clock saves per added second; clocks that would cost energy are excluded.
  void push(std::size_t k) {
    const Clocked& unit = clocked_[k];
    const double lower = unit.mhz - curve_.step_mhz;
    if (lower < curve_.least_mhz - 1e-9) return;
    const double saved = busy_joules(unit, curve_, unit.mhz) - busy_joules(unit, curve_, lower);
    if (saved <= 0) return;
    const double added = static_cast<double>(unit.top_ps) * (curve_.slowdown(lower) - curve_.slowdown(unit.mhz));
    next_.emplace(saved / std::max(added, 1.0), k);
  }

  const Step& step_;
  const PowerCurve& curve_;
  StepGraph graph_;
  std::vector<Clocked> clocked_;
  std::priority_queue<std::pair<double, std::size_t>> next_;
};

}  // namespace

double PowerCurve::watts(double mhz) const {
  const double f = mhz / top_mhz;
  const double voltage = std::max(f, knee);
  return fixed_watts + dynamic_watts * f * voltage * voltage;
}

double PowerCurve::slowdown(double mhz) const {
  return bound * top_mhz / mhz + 1 - bound;
}

namespace {

constexpr double kMost = 1e5;

struct PowerField {
  const char* name;
  double least, most;
  double PowerCurve::*value;
};
constexpr std::array kPowerFields{PowerField{"fixed", 0, kMost, &PowerCurve::fixed_watts},
                                  PowerField{"dynamic", 0, kMost, &PowerCurve::dynamic_watts},
                                  PowerField{"idle", 0, kMost, &PowerCurve::idle_watts},
                                  PowerField{"top", 1, kMost, &PowerCurve::top_mhz},
                                  PowerField{"least", 1, kMost, &PowerCurve::least_mhz},
                                  PowerField{"step", 0.1, kMost, &PowerCurve::step_mhz},
                                  PowerField{"knee", 0, 1, &PowerCurve::knee},
                                  PowerField{"bound", 0, 1, &PowerCurve::bound}};

}  // namespace

PowerCurve parse_power(std::string_view text) {
  std::vector<std::string_view> names;
  for (const PowerField& field : kPowerFields) names.emplace_back(field.name);
  PowerCurve curve;
  for (const core::GivenField& given : core::given_fields("power", core::split(text, ','), names)) {
    const PowerField& field = kPowerFields.at(given.index);
    curve.*field.value = given.value.number_from(field.least, field.most);
  }
  if (curve.least_mhz <= curve.top_mhz) return curve;
  throw core::usage_error("power: least is above top; allowed: at most top");
}

std::string text_of(const PowerCurve& curve) {
  std::ostringstream text;
  for (const PowerField& field : kPowerFields) {
    text << (text.str().empty() ? "" : ",") << field.name << "=" << curve.*field.value;
  }
  return text.str();
}

ClockChoice all_at_top(const Step& step, const StepTimeline& timeline, const PowerCurve& curve, ClockOf of) {
  ClockChoice choice{.clocked = clocked_of(step, of, curve.top_mhz)};
  for (const auto& rank : timeline) {
    for (const schedules::TaskSpan& span : rank) choice.makespan_ps = std::max(choice.makespan_ps, span.end_ps);
  }
  choice.joules = joules_of(choice, curve, step.num_ranks());
  return choice;
}

Step slowed(const Step& step, const ClockChoice& choice, const PowerCurve& curve) {
  Step slower = step;
  for (const Clocked& unit : choice.clocked) {
    for (const std::uint32_t i : unit.tasks) {
      Task& task = slower.of_rank[static_cast<std::size_t>(unit.rank)].tasks[i];
      task.amount = slowed_ps(task.amount, curve, unit.mhz);
    }
  }
  return slower;
}

ClockChoice choose_clocks(const Step& step, const StepTimeline& timeline, const PowerCurve& curve, ClockOf of,
                          std::int64_t target_ps, const std::function<std::int64_t(const Step&)>& simulate) {
  constexpr int kTries = 8;
  const std::int64_t at_top = all_at_top(step, timeline, curve, of).makespan_ps;
  std::int64_t aim_ps = target_ps;
  for (int left = kTries; left > 0; --left) {
    ClockLowering lowering(step, timeline, curve, of);
    // Delays that the graph does not model (a host that issues late) are added to its times.
    const std::int64_t unknown_ps = at_top - lowering.makespan();
    ClockChoice choice{.clocked = lowering.until(aim_ps - std::max<std::int64_t>(unknown_ps, 0))};
    choice.makespan_ps = simulate(slowed(step, choice, curve));
    choice.joules = joules_of(choice, curve, step.num_ranks());
    if (choice.makespan_ps <= target_ps) return choice;
    aim_ps -= 2 * (choice.makespan_ps - target_ps);
  }
  ClockChoice top = all_at_top(step, timeline, curve, of);
  return top;
}

}  // namespace lockstep::simulator
