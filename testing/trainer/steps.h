// For tests: all schedules at many shapes, and simple steps and recipes.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/generators/catalogue.h"
#include "schedules/passes/passes.h"
#include "schedules/play.h"
#include "schedules/slices.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// For tests: all schedules of the catalogue at many shapes.

// Calls visit(entry, shape, schedule) for each entry and each valid shape with up to `most_ranks` ranks.
inline void for_every_schedule(
    std::int32_t most_ranks,
    const std::function<void(const CatalogueEntry&, const PipelineShape&, const Schedule&)>& visit) {
  for (const CatalogueEntry& entry : catalogue()) {
    for (std::int32_t ranks = 1; ranks <= most_ranks; ++ranks) {
      for (std::int32_t microbatches : {1, 2, 3, ranks, 2 * ranks, 2 * ranks + 1, 3 * ranks, 17, 4 * ranks}) {
        for (std::int32_t chunks = 1; chunks <= (entry.takes_chunks ? 4 : 1); ++chunks) {
          for (std::int32_t slices = 1; slices <= (entry.takes_slices ? 2 : 1); ++slices) {
            PipelineShape shape{ranks, microbatches, chunks};
            if (slices > 1) shape.slice_tokens = even_slices(slices, slices);
            if (why_invalid(entry, shape).empty()) visit(entry, shape, entry.make(shape));
          }
        }
      }
    }
  }
}

inline Spans spans(const Schedule& schedule, const Times& times) {
  return spans_of(schedule, times, play(schedule, times));
}

// In the fullest rank, until the weight gradients.
inline double most_held(const Schedule& schedule, double w_share = 1) {
  double most = 0;
  for (const RankCounts& rank : count_ranks(schedule, w_share)) most = std::max(most, rank.peak.until_weight_gradient);
  return most;
}

// The first problem of a schedule's text; empty: none.
inline std::string problem_of(std::string_view csv) {
  const auto problems = check(parse_csv(csv, "s.csv"));
  return problems.empty() ? "" : problems.front().what;
}

// For tests: plays a step by the obvious rule, without any cleverness. Links carry any number of messages at once.

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

// For tests of passes: steps whose actions are split into pieces.

// Per part a forward of 10 ps; input and weight gradients of 10 ps each, from the last part to the first.
inline StageRecipe recipe_of_parts(std::int32_t parts) {
  StageRecipe recipe;
  for (std::int32_t part = 0; part < parts; ++part) {
    const std::int32_t back = parts - 1 - part;
    recipe.forward.push_back({.op = Op::forward, .part = part, .amount = 10});
    recipe.backward.push_back({.op = Op::backward, .part = back, .amount = 20});
    recipe.input_gradient.push_back({.op = Op::input_gradient, .part = back, .amount = 10});
    recipe.weight_gradient.push_back({.op = Op::weight_gradient, .part = back, .amount = 10});
  }
  return recipe;
}

// Groups for two pipes in opposite directions: the outermost ranks, then those next to them, ...
inline void add_groups_of_ends(Step& step, GroupKind kind) {
  for (std::int32_t r = 0; r < step.num_ranks() / 2; ++r) step.groups.push_back({kind, {r, step.num_ranks() - 1 - r}});
}

// Each rank represents a data-parallel group of `data_ranks` ranks.
inline Step step_of_parts(const Schedule& schedule, std::int32_t parts, std::int64_t data_ranks) {
  Step step = lower(schedule, std::vector<StageCosts>(num_works(schedule), {.message_bytes = 1}));
  split_stages(step, std::vector<StageRecipe>(num_works(schedule), recipe_of_parts(parts)));
  for (std::int32_t r = 0; r < step.num_ranks(); ++r) step.groups.push_back({GroupKind::data, {r}, data_ranks});
  return step;
}

}  // namespace lockstep::schedules
