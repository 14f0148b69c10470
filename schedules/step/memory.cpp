#include "schedules/step/breakdown.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kNever = -1;

// When the activations of a microbatch in a stage, or in a part of a stage, are allocated and freed.
struct Life {
  std::int64_t from = kNever;
  std::int64_t input_gradient_end = kNever;
  std::int64_t end = kNever;
  std::int64_t offloaded = kNever;
  std::int64_t loaded = kNever;
};

class RankHolding {
 public:
  RankHolding(const RankStep& rank, const std::vector<TaskSpan>& spans,
              std::span<const std::vector<ActivationBytes>> activations, std::int32_t slices)
      : rank_(rank), spans_(spans), activations_(activations), slices_(slices) {}

  RankMemory run() {
    for (const TaskSpan& span : spans_) last_ = std::max(last_, span.end_ps);
    hold_activations();
    hold_for_other();
    hold_parameters();
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      if (rank_.tasks[i].op == Op::reduce_grad && rank_.tasks[i].microbatch >= 0) hold_gradients(i);
    }
    hold_messages();
    RankMemory memory;
    for (std::size_t kind = 0; kind < kNumHeld; ++kind) memory[kind] = curve_of(changes_[kind]);
    return memory;
  }

 private:
  using Changes = std::vector<std::pair<std::int64_t, std::int64_t>>;  // (time, change in bytes)

  void hold(Held kind, std::int64_t bytes, std::int64_t from, std::int64_t to) {
    if (bytes == 0 || from >= to) return;
    auto& changes = changes_[static_cast<std::size_t>(kind)];
    changes.push_back({from, bytes});
    changes.push_back({to, -bytes});
  }

  void hold_activations() {
    std::map<std::tuple<std::int32_t, std::size_t, std::int32_t>, Life> lives;  // by (stage, part, microbatch)
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      const Task& task = rank_.tasks[i];
      const TaskSpan& span = spans_[i];
      const bool copied = copies(task, Copied::activations);
      const bool leaves = task.op == Op::evict || (copied && task.op == Op::offload);
      const bool returns = task.op == Op::fetch || (copied && task.op == Op::load);
      if (!is_compute(task.op) && !leaves && !returns) continue;
      const bool has_parts = parts_of(task).size() > 1;
      Life& life = lives[{task.stage, has_parts ? static_cast<std::size_t>(task.part) : 0, task.microbatch}];
      if (task.op == Op::forward && life.from == kNever) life.from = span.start_ps;
      if (leaves) life.offloaded = span.end_ps;
      if (returns) life.loaded = span.start_ps;
      if (!is_compute(task.op) || task.op == Op::forward) continue;
      if (task.op != Op::weight_gradient) life.input_gradient_end = std::max(life.input_gradient_end, span.end_ps);
      life.end = std::max(life.end, span.end_ps);
    }
    for (const auto& [key, life] : lives) {
      const auto& [stage, part, microbatch] = key;
      hold_life(activations_[work_index(stage, microbatch, slices_)].at(part), life);
    }
  }

  const std::vector<ActivationBytes>& parts_of(const Task& task) const {
    return activations_[work_index(task.stage, task.microbatch, slices_)];
  }

  void hold_for_other() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> since;  // by (stage, microbatch)
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      const Task& task = rank_.tasks[i];
      if (task.op == Op::hold) since[{task.stage, task.microbatch}] = spans_[i].start_ps;
      if (task.op != Op::yield) continue;
      const std::int64_t from = since.at({task.stage, task.microbatch});
      for (const ActivationBytes& bytes : parts_of(task)) {
        hold(Held::activations, bytes.until_input_gradient, from, spans_[i].end_ps);
        hold(Held::weight_activations, bytes.until_weight_gradient, from, spans_[i].end_ps);
      }
    }
  }

  void hold_life(const ActivationBytes& bytes, const Life& life) {
    if (life.from == kNever) return;
    const auto or_last = [this](std::int64_t time) { return time == kNever ? last_ : time; };
    const std::int64_t there = life.offloaded == kNever ? life.from : or_last(life.loaded);
    for (const auto& [kind, amount, end] :
         {std::tuple(Held::activations, bytes.until_input_gradient, or_last(life.input_gradient_end)),
          std::tuple(Held::weight_activations, bytes.until_weight_gradient, or_last(life.end))}) {
      hold(kind, amount, there, end);
      if (life.offloaded != kNever) hold(kind, amount, life.from, life.offloaded);
    }
  }

  void hold_parameters() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> gathered;  // by (stage, unit): UNSHARD
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      const Task& task = rank_.tasks[i];
      const std::pair unit(task.stage, task.part);
      if (task.op == Op::unshard) gathered[unit] = i;
      if (task.op != Op::reshard || !gathered.contains(unit)) continue;
      hold_unit(gathered.at(unit), spans_[i].end_ps);
      gathered.erase(unit);
    }
    for (const auto& [unit, task] : gathered) hold_unit(task, last_);
  }
  void hold_unit(std::size_t unshard, std::int64_t until) {
    hold(Held::parameters, rank_.tasks[unshard].amount, spans_[unshard].start_ps, until);
  }

  void hold_gradients(std::size_t reduction) {
    const Task& task = rank_.tasks[reduction];
    std::int64_t from = kNever;
    for (const std::uint32_t earlier : rank_.after_of(task)) {
      // A bucket is held from its last kernel on, also while it waits for another bucket's sum over replicas.
      const bool frees_place = task.lane == Lane::reduce && rank_.tasks[earlier].lane == Lane::replicas;
      if (!frees_place) from = std::max(from, spans_[earlier].end_ps);
    }
    if (from != kNever) hold(Held::gradients, task.amount, from, spans_[reduction].end_ps);
  }

  void hold_messages() {
    std::vector<std::int64_t> taken(rank_.tasks.size(), kNever);  // per receive: end of the task that waits for it
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      for (const std::uint32_t earlier : rank_.after_of(rank_.tasks[i])) {
        if (is_recv(rank_.tasks[earlier].op)) taken[earlier] = std::max(taken[earlier], spans_[i].end_ps);
      }
    }
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      const Op op = rank_.tasks[i].op;
      if (!is_recv(op) || op == Op::hold || op == Op::fetch) continue;  // counted as activations
      hold(Held::messages, rank_.tasks[i].amount, spans_[i].start_ps, std::max(taken[i], spans_[i].end_ps));
    }
  }

  static MemoryCurve curve_of(Changes& changes) {
    std::sort(changes.begin(), changes.end());
    MemoryCurve curve;
    std::int64_t bytes = 0;
    for (const auto& [time, change] : changes) {
      bytes += change;
      if (curve.empty() || curve.back().time_ps != time) curve.push_back({time, 0});
      curve.back().bytes = bytes;
    }
    return curve;
  }

  const RankStep& rank_;
  const std::vector<TaskSpan>& spans_;
  std::span<const std::vector<ActivationBytes>> activations_;
  const std::int32_t slices_;
  std::int64_t last_ = 0;
  std::array<Changes, kNumHeld> changes_ = {};
};

}  // namespace

std::string_view name_of(Held kind) {
  constexpr std::array<std::string_view, kNumHeld> kNames{"activations", "activations for W", "gathered parameters",
                                                          "gradients", "messages"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<RankMemory> memory_over_time(const Step& step, const StepTimeline& timeline,
                                         std::span<const std::vector<ActivationBytes>> activations) {
  LOCKSTEP_CHECK(activations.size() == step.rank_of_stage.size() * static_cast<std::size_t>(step.slices),
                 "sizes of each stage and slice");
  std::vector<RankMemory> all;
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    all.push_back(RankHolding(step.of_rank[r], timeline[r], activations, step.slices).run());
  }
  return all;
}

MemoryPeak peak_of(const RankMemory& memory) {
  std::map<std::int64_t, std::array<std::int64_t, kNumHeld>> changed;  // by time: new value of each kind that changes
  for (std::size_t kind = 0; kind < kNumHeld; ++kind) {
    for (const MemoryPoint& point : memory[kind]) {
      auto [at, is_new] = changed.try_emplace(point.time_ps);
      if (is_new) at->second.fill(kNever);
      at->second[kind] = point.bytes;
    }
  }
  MemoryPeak peak;
  std::array<std::int64_t, kNumHeld> now = {};
  for (const auto& [time, values] : changed) {
    std::int64_t total = 0;
    for (std::size_t kind = 0; kind < kNumHeld; ++kind) {
      if (values[kind] != kNever) now[kind] = values[kind];
      peak.most_of[kind] = std::max(peak.most_of[kind], now[kind]);
      total += now[kind];
    }
    if (total > peak.bytes) peak = {.time_ps = time, .bytes = total, .of_kinds = now, .most_of = peak.most_of};
  }
  return peak;
}

}  // namespace lockstep::schedules
