#include "bench/pipeline/memory.h"

#include <algorithm>

#include "schedules/count.h"

namespace lockstep::pipeline {
namespace {

using schedules::Op;

struct Change {
  std::int64_t time_ps = 0;
  std::int64_t by = 0;  // change, in stages of a microbatch, or in tokens of a slice
};

// Received activations count from the start of their task, sent ones until its end.
std::int64_t change_until_b(Op op) {
  switch (op) {
    case Op::forward:
    case Op::hold:
    case Op::fetch:
      return 1;
    case Op::backward:
    case Op::input_gradient:
    case Op::evict:
    case Op::yield:
      return -1;
    default:
      return 0;
  }
}

// Frees go before takes at the same time.
std::vector<core::MemoryPoint> points_of(std::vector<Change> changes, double unit) {
  std::sort(changes.begin(), changes.end(),
            [](const auto& a, const auto& b) { return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.by < b.by; });
  std::vector<core::MemoryPoint> points{{0, 0}};
  std::int64_t held = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    held += changes[i].by;
    const bool is_last_of_time = i + 1 == changes.size() || changes[i + 1].time_ps != changes[i].time_ps;
    if (!is_last_of_time) continue;
    const double time_ms = static_cast<double>(changes[i].time_ps) / 1e9;
    if (time_ms == points.back().time_ms) {
      points.back().value = static_cast<double>(held) * unit;
    } else if (static_cast<double>(held) * unit != points.back().value) {
      points.push_back({time_ms, static_cast<double>(held) * unit});
    }
  }
  return points;
}

}  // namespace

core::MemoryRecord activations_over_time(const schedules::Schedule& schedule, const schedules::Step& step,
                                         const schedules::StepTimeline& timeline, double w_share) {
  core::MemoryRecord record{"microbatch activations", {}};
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::vector<Change> until_b;
    std::vector<Change> until_w;
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      const auto& task = step.of_rank[r].tasks[i];
      const Op op = task.op;
      const auto& span = timeline[r][i];
      const std::int64_t tokens = schedules::tokens_of(schedule, task.microbatch);
      const std::int64_t change = change_until_b(op);
      if (change != 0) until_b.push_back({change > 0 ? span.start_ps : span.end_ps, change * tokens});
      if (op == Op::input_gradient) until_w.push_back({span.end_ps, tokens});
      if (op == Op::weight_gradient) until_w.push_back({span.end_ps, -tokens});
    }
    const double unit = 1 / schedules::unit_of(schedule);
    record.of_rank.push_back(
        {{"until_b", points_of(std::move(until_b), unit)}, {"until_w", points_of(std::move(until_w), unit * w_share)}});
  }
  return record;
}

}  // namespace lockstep::pipeline
