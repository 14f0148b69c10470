// Tools of generators: a schedule of lists, a grid of time slots, and the list of a rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

// The schedule whose ranks have the lists that list_of(rank) makes. `microbatches`: or slices.
template <class ListOf>
Schedule schedule_of(std::int32_t ranks, std::int32_t microbatches, std::int32_t stages_per_pipe,
                     std::vector<std::int32_t> rank_of_stage, const ListOf& list_of) {
  Schedule schedule{.name = {},
                    .num_microbatches = microbatches,
                    .stages_per_pipe = stages_per_pipe,
                    .rank_of_stage = std::move(rank_of_stage)};
  for (std::int32_t rank = 0; rank < ranks; ++rank) schedule.of_rank.push_back(list_of(rank));
  return schedule;
}

// Turns a grid of time slots, in which a schedule puts "this action in that slot", into an ordered list of actions.

struct Placed {
  std::int32_t slot = 0;
  Action action = {};
};

// Actions sorted by slot; actions of the same slot keep their order.
inline std::vector<Action> in_order_of_slots(std::vector<Placed> placed) {
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.slot < b.slot; });
  std::vector<Action> actions;
  for (const Placed& entry : placed) actions.push_back(entry.action);
  return actions;
}

// A rank's list while a generator writes it. Microbatches go through a stage in order, so a generator only names the
// stage that works next.

class RankList {
 public:
  // Each stage takes `count` microbatches, from 0 or from begin_at() on. With more than one slice per microbatch these
  // are slices, and the last slice of a microbatch goes backward first.
  RankList(std::int32_t num_stages, std::int32_t count, std::int32_t slices = 1)
      : first_(static_cast<std::size_t>(num_stages)),
        next_(static_cast<std::size_t>(num_stages)),
        count_(count),
        slices_(slices) {}

  void begin_at(std::int32_t stage, std::int32_t microbatch) { first_[index(stage)] = microbatch; }

  // Each of these adds nothing and returns false if the stage has taken all of its microbatches.
  bool forward(std::int32_t stage) { return add(Op::forward, stage, next_[index(stage)].forward); }
  bool backward(std::int32_t stage) {
    if (!add(Op::backward, stage, next_[index(stage)].backward)) return false;
    std::int32_t& microbatch = list_.back().microbatch;
    microbatch += slices_ - 1 - 2 * (microbatch % slices_);
    return true;
  }
  // Adds an input gradient; the weight gradient is then pending.
  bool input_gradient(std::int32_t stage) {
    if (!add(Op::input_gradient, stage, next_[index(stage)].backward)) return false;
    pending_.push_back({Op::weight_gradient, stage, list_.back().microbatch});
    return true;
  }
  // Adds the oldest pending weight gradient.
  bool weight_gradient() {
    if (pending_.empty()) return false;
    list_.push_back(pending_.front());
    pending_.pop_front();
    return true;
  }
  // Adds the oldest pending weight gradient of a stage.
  bool weight_gradient(std::int32_t stage) {
    for (auto at = pending_.begin(); at != pending_.end(); ++at) {
      if (at->stage != stage) continue;
      list_.push_back(*at);
      pending_.erase(at);
      return true;
    }
    return false;
  }
  // Makes the last action run together with the next one.
  void fuse() { list_.back().with_next = true; }

  bool has_forward(std::int32_t stage) const { return next_[index(stage)].forward < count_; }
  bool has_backward(std::int32_t stage) const { return next_[index(stage)].backward < count_; }
  std::int32_t backwards(std::int32_t stage) const { return next_[index(stage)].backward; }
  std::vector<Action> take() { return std::move(list_); }

 private:
  struct Next {
    std::int32_t forward = 0;
    std::int32_t backward = 0;
  };
  static std::size_t index(std::int32_t stage) { return static_cast<std::size_t>(stage); }
  bool add(Op op, std::int32_t stage, std::int32_t& next) {
    if (next == count_) return false;
    list_.push_back({op, stage, first_[index(stage)] + next});
    ++next;
    return true;
  }

  std::vector<std::int32_t> first_;
  std::vector<Next> next_;
  std::int32_t count_;
  std::int32_t slices_;
  std::deque<Action> pending_;
  std::vector<Action> list_;
};

}  // namespace lockstep::schedules
