#include "bench/scaling/slowdowns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::scaling {

using schedules::Op;
using schedules::Step;
using schedules::Task;
using schedules::TaskSpan;

namespace {

constexpr double kMostFactor = 20;        // larger ones are from a piece that was descheduled
constexpr double kLeastConcurrent = 0.3;  // share of a sample

std::int64_t overlap_ps(const TaskSpan& a, const TaskSpan& b) {
  return std::max<std::int64_t>(std::min(a.end_ps, b.end_ps) - std::max(a.start_ps, b.start_ps), 0);
}

std::int64_t length_ps(const TaskSpan& span) {
  return span.end_ps - span.start_ps;
}

double weighted_median(const std::vector<std::pair<double, double>>& sorted) {
  const double all =
      std::accumulate(sorted.begin(), sorted.end(), 0.0, [](double sum, const auto& one) { return sum + one.second; });
  double below = 0;
  for (const auto& [value, weight] : sorted) {
    below += weight;
    if (below >= all / 2) return value;
  }
  return sorted.back().first;
}

// Time in which any of the others runs as well.
std::int64_t concurrent_ps(const SlotSpans& slot, std::size_t kernel) {
  std::int64_t most = 0;
  for (std::size_t other = 0; other < slot.kernels.size(); ++other) {
    // They begin together, so that the longest overlap contains all others.
    if (other != kernel) most = std::max(most, overlap_ps(slot.kernels[kernel].second, slot.kernels[other].second));
  }
  return most;
}

}  // namespace

// Work proceeds at 1 / factor while others run: in that time alone - (took - beside) of it was done.
void Factor::add(std::int64_t alone_ps, std::int64_t took_ps, std::int64_t beside_ps) {
  if (alone_ps <= 0 || static_cast<double>(beside_ps) < kLeastConcurrent * static_cast<double>(took_ps)) return;
  const auto beside = static_cast<double>(beside_ps);
  const double done = std::max(static_cast<double>(alone_ps - (took_ps - beside_ps)), beside / kMostFactor);
  const std::pair<double, double> sample{beside / done, static_cast<double>(alone_ps)};
  samples_.insert(std::upper_bound(samples_.begin(), samples_.end(), sample), sample);
  value_ = weighted_median(samples_);
}

Op family_of(Op op) {
  return op == Op::input_gradient || op == Op::weight_gradient ? Op::backward : op;
}

double Slowdowns::of_kernel(Op op, std::int32_t computing, bool beside_collective) const {
  double factor = 1;
  if (const auto family = kernel.find(family_of(op)); family != kernel.end() && computing > 1) {
    std::int32_t below = 1;
    double low = 1;
    for (const auto& [ranks, measured] : family->second) {
      const double high = measured.value();
      factor = high;
      if (ranks >= computing) {
        factor = low + (high - low) * (computing - below) / (ranks - below);
        break;
      }
      below = ranks;
      low = high;
    }
  }
  const auto beside = kernel_beside.find(family_of(op));
  return beside_collective && beside != kernel_beside.end() ? factor * beside->second.value() : factor;
}

double Slowdowns::of_collective(schedules::Lane lane, double share) const {
  return 1 + (collective[static_cast<std::size_t>(lane)].value() - 1) * share;
}

void add_samples(Slowdowns& slowdowns, const Step& step, const std::vector<SlotSpans>& slots, const Prices& prices) {
  const auto task_at = [&](const TaskPlace& place) -> const Task& {
    return step.of_rank[static_cast<std::size_t>(place.rank)].tasks[place.task];
  };
  for (const SlotSpans& slot : slots) {
    const auto computing = static_cast<std::int32_t>(slot.kernels.size());
    std::int64_t computed_ps = 0;
    for (std::size_t k = 0; k < slot.kernels.size(); ++k) {
      const TaskPlace& place = slot.kernels[k].first;
      const TaskSpan& span = slot.kernels[k].second;
      const Task& task = task_at(place);
      if (task.op == Op::reshard) continue;  // computes nothing
      const std::int64_t alone = prices.of(task, place.rank);
      if (slot.collective.empty()) {
        if (computing > 1) {
          slowdowns.kernel[family_of(task.op)][computing].add(alone, length_ps(span), concurrent_ps(slot, k));
        }
        continue;
      }
      computed_ps = std::max(computed_ps, overlap_ps(span, slot.collective_span));
      const bool member = std::any_of(slot.collective.begin(), slot.collective.end(),
                                      [&](const TaskPlace& one) { return one.rank == place.rank; });
      if (!member) continue;
      const double with_kernels = slowdowns.of_kernel(task.op, computing, false);
      slowdowns.kernel_beside[family_of(task.op)].add(std::llround(static_cast<double>(alone) * with_kernels),
                                                      length_ps(span), overlap_ps(span, slot.collective_span));
    }
    if (slot.collective.empty() || slot.kernels.empty()) continue;
    const Task& task = task_at(slot.collective.front());
    slowdowns.collective[static_cast<std::size_t>(task.lane)].add(prices.of(task, slot.collective.front().rank),
                                                                  length_ps(slot.collective_span), computed_ps);
  }
}

simulator::Slowdown slowdown_of(const Step& step, const Slowdowns& slowdowns, const simulator::LanesBeside& beside) {
  return [&step, &slowdowns, beside](std::int32_t rank, std::size_t index, const simulator::Concurrent& concurrent) {
    const Task& task = step.of_rank[static_cast<std::size_t>(rank)].tasks[index];
    if (task.lane == schedules::Lane::compute) {
      return slowdowns.of_kernel(task.op, concurrent.kernels, concurrent.own_collective);
    }
    if (!beside[static_cast<std::size_t>(task.lane)]) return 1.0;
    return slowdowns.of_collective(task.lane, concurrent.computing_share);
  };
}

}  // namespace lockstep::scaling
