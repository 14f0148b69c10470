#include "schedules/step/breakdown.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace lockstep::schedules {

double wire_bytes(Comm comm, std::int64_t payload, std::int64_t ranks) {
  if (comm == Comm::none || ranks < 2) return 0;
  if (comm == Comm::shift) return static_cast<double>(payload);
  // For a broadcast or a reduction this is the mean over ranks, as one rank does not send.
  const double share = static_cast<double>(payload) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return comm == Comm::all_reduce ? 2 * share : share;
}

double beyond_bytes(Comm comm, std::int64_t payload, std::int64_t ranks, std::int64_t together) {
  if (comm == Comm::none || together >= ranks) return 0;
  const auto n = static_cast<double>(ranks);
  const auto k = static_cast<double>(together);
  const double bytes = static_cast<double>(payload);
  if (comm == Comm::all_to_all) return bytes * (n - k) / n;
  if (comm == Comm::shift) return bytes / k;  // in a ring, one member's message leaves the node
  const double pass = bytes * (n - k) / n / k;
  return comm == Comm::all_reduce ? 2 * pass : pass;
}

std::vector<SentBytes> count_sent(const Step& step) {
  std::vector<SentBytes> counts;
  for (const RankStep& rank : step.of_rank) {
    SentBytes sent;
    for (const Task& task : rank.tasks) {
      if (is_send(task.op)) sent.messages += static_cast<double>(task.amount);
      if (task.comm == Comm::none) continue;
      const Group& group = step.groups[static_cast<std::size_t>(task.peer)];
      sent.of_groups[static_cast<std::size_t>(group.kind)] += wire_bytes(task.comm, task.amount, group.size());
    }
    counts.push_back(sent);
  }
  return counts;
}

namespace {

using CollectiveKey = std::tuple<std::int32_t, Lane, std::int32_t>;       // group, lane, index of the collective
using MessageKey = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // from, to, tag

// Calls visit(meeting, rank, task) for each collective of each rank.
template <class Visit>
void for_collectives(const Step& step, const Visit& visit) {
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    std::map<std::pair<std::int32_t, Lane>, std::int32_t> met;
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (task.comm != Comm::none) visit(CollectiveKey{task.peer, task.lane, met[{task.peer, task.lane}]++}, r, i);
    }
  }
}

void begin_no_earlier(TaskSpan& span, std::int64_t start_ps) {
  span.start_ps = std::min(std::max(span.start_ps, start_ps), span.end_ps);
}

}  // namespace

StepTimeline when_bytes_move(const Step& step, StepTimeline timeline) {
  std::map<CollectiveKey, std::int64_t> last;
  for_collectives(step, [&](const CollectiveKey& meeting, std::size_t r, std::size_t i) {
    std::int64_t& start = last.try_emplace(meeting, timeline[r][i].start_ps).first->second;
    start = std::max(start, timeline[r][i].start_ps);
  });
  for_collectives(step, [&](const CollectiveKey& meeting, std::size_t r, std::size_t i) {
    begin_no_earlier(timeline[r][i], last.at(meeting));
  });
  std::map<MessageKey, std::int64_t> sent;
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (is_send(task.op)) sent[{static_cast<std::int32_t>(r), task.peer, task.tag}] = timeline[r][i].start_ps;
    }
  }
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (!is_recv(task.op)) continue;
      const auto send = sent.find({task.peer, static_cast<std::int32_t>(r), task.tag});
      if (send != sent.end()) begin_no_earlier(timeline[r][i], send->second);
    }
  }
  return timeline;
}

namespace {

constexpr std::size_t index_of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

std::int64_t& part_for(Breakdown& parts, Op op) {
  switch (op) {
    case Op::forward:
      return parts.forward_ps;
    case Op::recompute:
      return parts.recompute_ps;
    case Op::optimizer:
      return parts.optimizer_ps;
    case Op::curvature:
    case Op::inversion:
    case Op::filler:
      return parts.filler_ps;
    default:
      return parts.backward_ps;
  }
}

// True if the step has one rank, which neither stands for others nor has messages from them.
bool is_alone(const Step& step) {
  if (step.of_rank.size() > 1) return false;
  const auto& tasks = step.of_rank.front().tasks;
  const auto has_peer = [](const Task& task) { return task.lane == Lane::send || task.lane == Lane::receive; };
  return std::none_of(tasks.begin(), tasks.end(), has_peer) &&
         std::all_of(step.groups.begin(), step.groups.end(), [](const Group& group) { return group.size() <= 1; });
}

class RankBreakdown {
 public:
  // A collective of one rank moves nothing.
  RankBreakdown(const Step& step, const RankStep& rank, const std::vector<TaskSpan>& spans, std::int64_t makespan_ps,
                const BlockingLanes& blocking)
      : rank_(rank), spans_(spans), makespan_ps_(makespan_ps), blocking_(blocking), alone_(is_alone(step)) {
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
      const Task& task = rank.tasks[i];
      const bool moves = task.comm == Comm::none || step.groups[static_cast<std::size_t>(task.peer)].size() > 1;
      if (task.lane != Lane::compute && moves) moving_[index_of(task.lane)].push_back({spans[i], task.lane, task.comm});
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
  struct MovedSpan {
    TaskSpan span;
    Lane lane = Lane::compute;
    Comm comm = Comm::none;
  };

  // Bytes that moved in a gap count if the task that ends the gap waited for them or was blocked by their lane.
  void split_gap(const TaskSpan& gap, const Task& task) {
    moved_.clear();
    std::uint32_t seen = 0;
    for (const std::uint32_t edge : rank_.after_of(task)) {
      const Lane lane = rank_.tasks[edge].lane;
      if (lane == Lane::compute) continue;
      if (lane == Lane::send || lane == Lane::receive) {
        moved_.push_back({spans_[edge], lane, Comm::none});
      } else if ((seen >> index_of(lane) & 1U) == 0) {
        seen |= 1U << index_of(lane);
        add_moved(lane, gap);
      }
    }
    for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
      if (blocking_[lane] && (seen >> lane & 1U) == 0) add_moved(static_cast<Lane>(lane), gap);
    }
    share_out(gap);
  }

  // After its last kernel a rank only waits for what its own lanes still move.
  void split_tail(const TaskSpan& tail) {
    moved_.clear();
    for (const Lane lane :
         {Lane::gather, Lane::reduce, Lane::replicas, Lane::tensor, Lane::copy, Lane::load, Lane::host, Lane::send}) {
      add_moved(lane, tail);
    }
    share_out(tail);
  }

  // Gaps and the spans of a lane are both in order of time.
  void add_moved(Lane lane, const TaskSpan& gap) {
    const std::vector<MovedSpan>& moving = moving_[index_of(lane)];
    std::size_t& at = next_[index_of(lane)];
    while (at < moving.size() && moving[at].span.end_ps <= gap.start_ps) ++at;
    for (std::size_t i = at; i < moving.size() && moving[i].span.start_ps < gap.end_ps; ++i)
      moved_.push_back(moving[i]);
  }

  // Each moment of the gap counts once: for the transfer that began first, or as bubble.
  void share_out(const TaskSpan& gap) {
    std::stable_sort(moved_.begin(), moved_.end(),
                     [](const MovedSpan& a, const MovedSpan& b) { return a.span.start_ps < b.span.start_ps; });
    std::int64_t cursor = gap.start_ps;
    std::int64_t left = gap.end_ps - gap.start_ps;
    for (const MovedSpan& moved : moved_) {
      const std::int64_t begin = std::max(cursor, moved.span.start_ps);
      const std::int64_t end = std::min(moved.span.end_ps, gap.end_ps);
      if (end <= begin) continue;
      parts_.exposed_ps[index_of(moved.lane)] += end - begin;
      if (moved.comm != Comm::none) parts_.exposed_of_ps[static_cast<std::size_t>(moved.comm)] += end - begin;
      left -= end - begin;
      cursor = end;
    }
    (alone_ ? parts_.between_ps : parts_.bubble_ps) += left;
  }

  const RankStep& rank_;
  const std::vector<TaskSpan>& spans_;
  std::int64_t makespan_ps_;
  const BlockingLanes& blocking_;
  const bool alone_;
  std::array<std::vector<MovedSpan>, kNumLanes> moving_;
  std::array<std::size_t, kNumLanes> next_ = {};
  std::vector<MovedSpan> moved_;  // in the current gap
  Breakdown parts_;
};

}  // namespace

std::int64_t Breakdown::all_exposed_ps() const {
  return std::accumulate(exposed_ps.begin(), exposed_ps.end(), std::int64_t{0});
}

std::int64_t Breakdown::exposed_reductions_ps() const {
  return exposed_ps[index_of(Lane::reduce)] + exposed_ps[index_of(Lane::replicas)];
}

std::vector<Breakdown> breakdown_of(const Step& step, const StepTimeline& timeline, const BlockingLanes& blocking) {
  std::int64_t makespan_ps = 0;
  for (const auto& rank : timeline) {
    for (const TaskSpan& span : rank) makespan_ps = std::max(makespan_ps, span.end_ps);
  }
  std::vector<Breakdown> all;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    all.push_back(RankBreakdown(step, step.of_rank[r], timeline[r], makespan_ps, blocking).take());
  }
  return all;
}

}  // namespace lockstep::schedules
