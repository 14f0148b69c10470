#include <algorithm>
#include <cmath>

#include "bench/scaling/slowdowns.h"

namespace lockstep::scaling {
namespace {

using schedules::kNumLanes;
using schedules::Lane;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;
using schedules::TaskSpan;

constexpr int kMostRounds = 40;
constexpr double kSettled = 1e-4;  // of the step

// What runs when, of a step that was played.
class Neighbours {
 public:
  Neighbours(const Step& step, const StepTimeline& timeline, const std::array<bool, kNumLanes>& beside)
      : step_(step), kernels_(timeline.size()), collectives_(timeline.size()) {
    for (std::size_t r = 0; r < timeline.size(); ++r) {
      for (std::size_t i = 0; i < timeline[r].size(); ++i) {
        const Task& task = step.of_rank[r].tasks[i];
        if (timeline[r][i].end_ps <= timeline[r][i].start_ps) continue;
        if (task.lane == Lane::compute) kernels_[r].push_back(timeline[r][i]);
        if (task.comm != schedules::Comm::none && beside[static_cast<std::size_t>(task.lane)]) {
          collectives_[r].push_back(timeline[r][i]);
        }
      }
      // Those of two lanes may overlap and come in no order.
      std::sort(collectives_[r].begin(), collectives_[r].end(),
                [](const TaskSpan& a, const TaskSpan& b) { return a.start_ps < b.start_ps; });
    }
  }

  // How fast a kernel goes on in the mean over its span: 1 is as alone.
  double kernel_speed(const Slowdowns& slowdowns, std::size_t rank, const Task& task, const TaskSpan& span) const {
    return mean_over(span, [&](std::int64_t at_ps) {
      std::int32_t computing = 1;
      for (std::size_t r = 0; r < kernels_.size(); ++r) {
        if (r != rank && runs_at(kernels_[r], at_ps)) ++computing;
      }
      return 1 / slowdowns.of_kernel(task.op, computing, runs_at(collectives_[rank], at_ps));
    });
  }

  double collective_speed(const Slowdowns& slowdowns, const Task& task, const TaskSpan& span) const {
    const std::vector<std::int32_t>& members = step_.groups[static_cast<std::size_t>(task.peer)].ranks;
    return mean_over(span, [&](std::int64_t at_ps) {
      const auto computing = std::count_if(members.begin(), members.end(), [&](std::int32_t member) {
        return runs_at(kernels_[static_cast<std::size_t>(member)], at_ps);
      });
      return 1 /
             slowdowns.of_collective(task.lane, static_cast<double>(computing) / static_cast<double>(members.size()));
    });
  }

 private:
  static bool runs_at(const std::vector<TaskSpan>& spans, std::int64_t at_ps) {
    const auto after = std::upper_bound(spans.begin(), spans.end(), at_ps,
                                        [](std::int64_t at, const TaskSpan& span) { return at < span.start_ps; });
    return after != spans.begin() && std::prev(after)->end_ps > at_ps;
  }

  static void add_edges(std::vector<std::int64_t>& edges, const std::vector<TaskSpan>& spans, const TaskSpan& within) {
    auto span = std::upper_bound(spans.begin(), spans.end(), within.start_ps,
                                 [](std::int64_t at, const TaskSpan& one) { return at < one.start_ps; });
    if (span != spans.begin()) --span;
    for (; span != spans.end() && span->start_ps < within.end_ps; ++span) {
      for (const std::int64_t edge : {span->start_ps, span->end_ps}) {
        if (edge > within.start_ps && edge < within.end_ps) edges.push_back(edge);
      }
    }
  }

  // Of something that only changes when a kernel or a collective begins or ends.
  template <class Speed>
  double mean_over(const TaskSpan& span, const Speed& speed) const {
    std::vector<std::int64_t> edges{span.start_ps, span.end_ps};
    for (const auto* lists : {&kernels_, &collectives_}) {
      for (const std::vector<TaskSpan>& spans : *lists) add_edges(edges, spans, span);
    }
    std::sort(edges.begin(), edges.end());
    double sum = 0;
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      if (edges[i + 1] > edges[i]) sum += static_cast<double>(edges[i + 1] - edges[i]) * speed(edges[i]);
    }
    return sum / static_cast<double>(span.end_ps - span.start_ps);
  }

  const Step& step_;
  std::vector<std::vector<TaskSpan>> kernels_;      // of each rank
  std::vector<std::vector<TaskSpan>> collectives_;  // likewise, of those with threads of their own
};

std::int64_t stretched_ps(std::int64_t alone_ps, double speed) {
  return std::llround(static_cast<double>(alone_ps) / speed);
}

}  // namespace

PlayedStep play_contended(const Step& priced, const Slowdowns& slowdowns, const std::array<bool, kNumLanes>& beside) {
  Step step = priced;
  PlayedStep played = play(step);
  for (int round = 0; round < kMostRounds; ++round) {
    const Neighbours company(priced, played.timeline, beside);
    for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
      for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
        const Task& alone = priced.of_rank[r].tasks[i];
        const TaskSpan& span = played.timeline[r][i];
        if (alone.amount == 0) continue;
        double speed = 1;
        if (alone.lane == Lane::compute) speed = company.kernel_speed(slowdowns, r, alone, span);
        if (alone.comm != schedules::Comm::none && beside[static_cast<std::size_t>(alone.lane)]) {
          speed = company.collective_speed(slowdowns, alone, span);
        }
        // Half the way each time: what slows others down moves with them.
        std::int64_t& amount = step.of_rank[r].tasks[i].amount;
        amount = (amount + stretched_ps(alone.amount, speed)) / 2;
      }
    }
    const std::int64_t before = played.makespan_ps;
    played = play(step);
    const auto moved = static_cast<double>(std::abs(played.makespan_ps - before));
    if (moved <= kSettled * static_cast<double>(before)) break;
  }
  return played;
}

}  // namespace lockstep::scaling
