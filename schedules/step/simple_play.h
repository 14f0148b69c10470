// For tests: plays a step by the obvious rule, without any cleverness. Links carry any number of messages at once.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

struct SimplePrices {
  std::function<std::int64_t(const Task&)> collective = [](const Task&) { return std::int64_t{0}; };
  std::int64_t message_ps = 0;
};

class SimplePlay {
 public:
  SimplePlay(const Step& step, SimplePrices prices) : step_(step), prices_(std::move(prices)) {
    for (const RankStep& rank : step.of_rank) {
      spans_.emplace_back(rank.tasks.size(), TaskSpan{-1, -1});
      lane_clock_.emplace_back();
    }
  }

  // Throws if it hangs.
  StepTimeline run() {
    std::size_t left = 0;
    for (const RankStep& rank : step_.of_rank) left += rank.tasks.size();
    while (left > 0) {
      const std::size_t before = left;
      for (std::size_t r = 0; r < spans_.size(); ++r) left -= pass_over(r);
      if (left == before) throw std::runtime_error("the step hangs");
    }
    return spans_;
  }

 private:
  using Meeting = std::pair<std::int32_t, std::pair<Lane, std::int32_t>>;  // group, lane, index of the collective

  std::size_t pass_over(std::size_t r) {
    std::size_t done = 0;
    std::array<bool, kNumLanes> blocked = {};
    std::map<std::pair<std::int32_t, Lane>, std::int32_t> met;  // number of earlier collectives of each group
    for (std::size_t i = 0; i < spans_[r].size(); ++i) {
      const Task& task = step_.of_rank[r].tasks[i];
      const auto lane = static_cast<std::size_t>(task.lane);
      const std::int32_t number = task.comm == Comm::none ? 0 : met[{task.peer, task.lane}]++;
      if (spans_[r][i].end_ps >= 0) continue;
      if (blocked[lane] || !try_task(r, i, number)) {
        blocked[lane] = true;
      } else {
        ++done;
      }
    }
    return done;
  }

  bool try_task(std::size_t r, std::size_t i, std::int32_t number) {
    const Task& task = step_.of_rank[r].tasks[i];
    std::int64_t start = lane_clock_[r][static_cast<std::size_t>(task.lane)];
    for (const std::uint32_t earlier : step_.of_rank[r].after_of(task)) {
      if (spans_[r][earlier].end_ps < 0) return false;
      start = std::max(start, spans_[r][earlier].end_ps);
    }
    std::int64_t end = start;
    if (is_recv(task.op)) {
      const auto sent = sent_.find({task.peer, {static_cast<std::int32_t>(r), task.tag}});
      if (sent == sent_.end()) return false;
      end = std::max(start, sent->second);
    } else if (is_send(task.op)) {
      sent_[{static_cast<std::int32_t>(r), {task.peer, task.tag}}] = start + prices_.message_ps;
    } else if (task.comm != Comm::none) {
      auto& arrivals = arrived_[{task.peer, {task.lane, number}}];
      arrivals[r] = start;
      if (arrivals.size() < step_.groups[static_cast<std::size_t>(task.peer)].ranks.size()) return false;
      for (const auto& [rank, at] : arrivals) end = std::max(end, at);
      start = end;
      end += prices_.collective(task);
    } else {
      end += task.amount;
    }
    spans_[r][i] = {start, end};
    lane_clock_[r][static_cast<std::size_t>(task.lane)] = end;
    return true;
  }

  const Step& step_;
  SimplePrices prices_;
  StepTimeline spans_;
  std::vector<std::array<std::int64_t, kNumLanes>> lane_clock_;
  std::map<std::pair<std::int32_t, std::pair<std::int32_t, std::int32_t>>, std::int64_t> sent_;
  std::map<Meeting, std::map<std::size_t, std::int64_t>> arrived_;
};

inline StepTimeline play_simply(const Step& step, SimplePrices prices = {}) {
  return SimplePlay(step, std::move(prices)).run();
}

inline std::int64_t end_of(const StepTimeline& timeline) {
  std::int64_t end = 0;
  for (const auto& rank : timeline) {
    for (const TaskSpan& span : rank) end = std::max(end, span.end_ps);
  }
  return end;
}

}  // namespace lockstep::schedules
