#include "schedules/step/breakdown.h"

#include <algorithm>
#include <numeric>

namespace lockstep::schedules {
namespace {

constexpr std::size_t index_of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

std::int64_t overlap(const TaskSpan& a, const TaskSpan& b) {
  return std::max<std::int64_t>(0, std::min(a.end_ps, b.end_ps) - std::max(a.start_ps, b.start_ps));
}

std::int64_t& part_for(Breakdown& parts, Op op) {
  switch (op) {
    case Op::forward:
      return parts.forward_ps;
    case Op::recompute:
      return parts.recompute_ps;
    case Op::optimizer:
      return parts.optimizer_ps;
    default:
      return parts.backward_ps;
  }
}

class RankBreakdown {
 public:
  RankBreakdown(const RankStep& rank, const std::vector<TaskSpan>& spans, std::int64_t makespan_ps)
      : rank_(rank), spans_(spans), makespan_ps_(makespan_ps) {
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
      const std::size_t lane = index_of(rank.tasks[i].lane);
      if (lane != index_of(Lane::compute)) moving_[lane].push_back(spans[i]);
    }
  }

  Breakdown take() {
    std::int64_t cursor = 0;
    for (std::size_t i = 0; i < rank_.tasks.size(); ++i) {
      const Task& task = rank_.tasks[i];
      if (task.lane != Lane::compute) continue;
      if (spans_[i].start_ps > cursor) split_gap({cursor, spans_[i].start_ps}, task);
      part_for(parts_, task.op) += spans_[i].end_ps - spans_[i].start_ps;
      cursor = spans_[i].end_ps;
    }
    if (makespan_ps_ > cursor) split_tail({cursor, makespan_ps_});
    return parts_;
  }

 private:
  // What moved in a gap counts where the task that ends it waited for it; where two lanes moved at once, the gap is
  // given to the first.
  void split_gap(const TaskSpan& gap, const Task& task) {
    std::int64_t left = gap.end_ps - gap.start_ps;
    std::uint32_t seen = 0;
    for (const std::uint32_t edge : rank_.after_of(task)) {
      const Lane lane = rank_.tasks[edge].lane;
      if (lane == Lane::compute) continue;
      const bool message = lane == Lane::send || lane == Lane::receive;
      if (!message && (seen >> index_of(lane) & 1U) != 0) continue;
      seen |= 1U << index_of(lane);
      give(lane, message ? overlap(gap, spans_[edge]) : moved_in(lane, gap), left);
    }
    parts_.bubble_ps += left;
  }

  // After its last kernel a rank has nothing but what its own lanes still move.
  void split_tail(const TaskSpan& tail) {
    std::int64_t left = tail.end_ps - tail.start_ps;
    for (const Lane lane : {Lane::gather, Lane::reduce, Lane::tensor, Lane::copy, Lane::send}) {
      give(lane, moved_in(lane, tail), left);
    }
    parts_.bubble_ps += left;
  }

  void give(Lane lane, std::int64_t ps, std::int64_t& left) {
    const std::int64_t given = std::min(ps, left);
    parts_.exposed_ps[index_of(lane)] += given;
    left -= given;
  }

  // Gaps come in order of time, and so do a lane's spans.
  std::int64_t moved_in(Lane lane, const TaskSpan& gap) {
    const std::vector<TaskSpan>& spans = moving_[index_of(lane)];
    std::size_t& at = next_[index_of(lane)];
    while (at < spans.size() && spans[at].end_ps <= gap.start_ps) ++at;
    std::int64_t sum = 0;
    for (std::size_t i = at; i < spans.size() && spans[i].start_ps < gap.end_ps; ++i) sum += overlap(gap, spans[i]);
    return sum;
  }

  const RankStep& rank_;
  const std::vector<TaskSpan>& spans_;
  std::int64_t makespan_ps_;
  std::array<std::vector<TaskSpan>, kNumLanes> moving_;
  std::array<std::size_t, kNumLanes> next_ = {};
  Breakdown parts_;
};

}  // namespace

std::int64_t Breakdown::all_exposed_ps() const {
  return std::accumulate(exposed_ps.begin(), exposed_ps.end(), std::int64_t{0});
}

std::vector<Breakdown> breakdown_of(const Step& step, const StepTimeline& timeline) {
  std::int64_t makespan_ps = 0;
  for (const auto& rank : timeline) {
    for (const TaskSpan& span : rank) makespan_ps = std::max(makespan_ps, span.end_ps);
  }
  std::vector<Breakdown> all;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    all.push_back(RankBreakdown(step.of_rank[r], timeline[r], makespan_ps).take());
  }
  return all;
}

}  // namespace lockstep::schedules
