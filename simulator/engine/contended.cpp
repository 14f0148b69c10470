#include "simulator/engine/contended.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "simulator/engine/engine.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::Lane;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;
using schedules::TaskSpan;

constexpr int kMostRounds = 40;
constexpr double kSettled = 1e-4;  // relative change of the makespan

bool is_kernel(const Task& task) {
  return task.lane == Lane::compute;
}
bool is_collective(const Task& task) {
  return task.comm != Comm::none;
}

// The spans of kernels and collectives in a simulated step.
class Overlaps {
 public:
  Overlaps(const Step& step, const StepTimeline& timeline, const LanesBeside& own_thread)
      : step_(step), kernels_(timeline.size()), own_thread_(timeline.size()), within_(timeline.size()) {
    for (std::size_t r = 0; r < timeline.size(); ++r) {
      for (std::size_t i = 0; i < timeline[r].size(); ++i) {
        const Task& task = step.of_rank[r].tasks[i];
        if (timeline[r][i].end_ps <= timeline[r][i].start_ps) continue;
        if (is_kernel(task)) kernels_[r].push_back(timeline[r][i]);
        if (is_collective(task)) {
          (own_thread[static_cast<std::size_t>(task.lane)] ? own_thread_ : within_)[r].push_back(timeline[r][i]);
        }
      }
      for (auto* spans : {&own_thread_[r], &within_[r]}) {  // spans of several lanes are unordered
        std::sort(spans->begin(), spans->end(),
                  [](const TaskSpan& a, const TaskSpan& b) { return a.start_ps < b.start_ps; });
      }
    }
  }

  // The mean of 1 / slowdown over the task's span: 1 is as fast as alone.
  double speed(const Slowdown& slowdown, std::size_t rank, std::size_t index, const TaskSpan& span) const {
    const Task& task = step_.of_rank[rank].tasks[index];
    std::vector<std::int64_t> edges{span.start_ps, span.end_ps};
    for (const auto* lists : {&kernels_, &own_thread_, &within_}) {
      for (const std::vector<TaskSpan>& spans : *lists) add_edges(edges, spans, span);
    }
    std::sort(edges.begin(), edges.end());
    double sum = 0;
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      if (edges[i + 1] == edges[i]) continue;
      const Concurrent concurrent = concurrent_at(rank, task, edges[i]);
      sum +=
          static_cast<double>(edges[i + 1] - edges[i]) / slowdown(static_cast<std::int32_t>(rank), index, concurrent);
    }
    return sum / static_cast<double>(span.end_ps - span.start_ps);
  }

 private:
  static bool runs_at(const std::vector<TaskSpan>& spans, std::int64_t at_ps) {
    const auto after = std::upper_bound(spans.begin(), spans.end(), at_ps,
                                        [](std::int64_t at, const TaskSpan& span) { return at < span.start_ps; });
    return after != spans.begin() && std::prev(after)->end_ps > at_ps;
  }

  static void add_edges(std::vector<std::int64_t>& edges, const std::vector<TaskSpan>& spans, const TaskSpan& within) {
    auto span = std::upper_bound(spans.begin(), spans.end(), within.start_ps,
                                 [](std::int64_t at, const TaskSpan& other) { return at < other.start_ps; });
    if (span != spans.begin()) --span;
    for (; span != spans.end() && span->start_ps < within.end_ps; ++span) {
      for (const std::int64_t edge : {span->start_ps, span->end_ps}) {
        if (edge > within.start_ps && edge < within.end_ps) edges.push_back(edge);
      }
    }
  }

  Concurrent concurrent_at(std::size_t rank, const Task& task, std::int64_t at_ps) const {
    Concurrent concurrent;
    for (std::size_t r = 0; r < kernels_.size(); ++r) {
      const bool itself = r == rank;
      concurrent.kernels += (itself && is_kernel(task)) || runs_at(kernels_[r], at_ps) ? 1 : 0;
      const bool own = runs_at(own_thread_[r], at_ps);
      concurrent.collectives += (own ? 1 : 0) + (runs_at(within_[r], at_ps) ? 1 : 0);
      if (itself) concurrent.own_collective = own;
    }
    if (!is_collective(task)) return concurrent;
    const std::vector<std::int32_t>& members = step_.groups[static_cast<std::size_t>(task.peer)].ranks;
    const auto computing = std::count_if(members.begin(), members.end(), [&](std::int32_t member) {
      return runs_at(kernels_[static_cast<std::size_t>(member)], at_ps);
    });
    concurrent.computing_share = static_cast<double>(computing) / static_cast<double>(members.size());
    return concurrent;
  }

  const Step& step_;
  std::vector<std::vector<TaskSpan>> kernels_;     // per rank
  std::vector<std::vector<TaskSpan>> own_thread_;  // per rank: collectives with threads of their own
  std::vector<std::vector<TaskSpan>> within_;      // per rank: collectives in the rank's thread
};

}  // namespace

Simulation play(const Step& priced) {
  constexpr double kPsAByte = 1;  // a message's "bytes" are its picoseconds
  const OneSwitch network(priced.num_ranks(), 0, {.ps_per_byte = kPsAByte});
  return simulate(priced, network, [](const schedules::Group&, const Task& task) { return task.amount; });
}

Step with_whole_messages(Step step) {
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int64_t> receives;  // from, to, tag
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (Task& task : step.of_rank[r].tasks) {
      if (!schedules::is_recv(task.op)) continue;
      receives[{task.peer, static_cast<std::int32_t>(r), task.tag}] = std::exchange(task.amount, 0);
    }
  }
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (Task& task : step.of_rank[r].tasks) {
      if (schedules::is_send(task.op)) task.amount += receives.at({static_cast<std::int32_t>(r), task.peer, task.tag});
    }
  }
  return step;
}

Simulation play_contended(const Step& priced, const LanesBeside& own_thread, const Slowdown& slowdown) {
  Step step = priced;
  Simulation played = play(step);
  for (int round = 0; round < kMostRounds; ++round) {
    const Overlaps overlaps(priced, played.timeline, own_thread);
    for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
      for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
        const Task& alone = priced.of_rank[r].tasks[i];
        const TaskSpan& span = played.timeline[r][i];
        if (span.end_ps <= span.start_ps || (!is_kernel(alone) && !is_collective(alone))) continue;
        // Damped by one half, as the overlaps change with the times.
        std::int64_t& amount = step.of_rank[r].tasks[i].amount;
        const double speed = overlaps.speed(slowdown, r, i, span);
        amount = (amount + std::llround(static_cast<double>(alone.amount) / speed)) / 2;
      }
    }
    const std::int64_t before = played.makespan_ps;
    played = play(step);
    const auto moved = static_cast<double>(std::abs(played.makespan_ps - before));
    if (moved <= kSettled * static_cast<double>(before)) break;
  }
  return played;
}

}  // namespace lockstep::simulator
