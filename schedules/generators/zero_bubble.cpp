// Hand-made schedules of Qi et al. 2023 (Zero Bubble Pipeline Parallelism, arXiv:2401.10241).
#include "schedules/generators/zero_bubble.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "schedules/generators/rank_list.h"
#include "schedules/play.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {
namespace {

// With fewer than 2p - 1 microbatches the order is the same without the missing ones.
std::int32_t written(const PipelineShape& shape) {
  return std::max(shape.microbatches, 2 * shape.ranks - 1);
}
std::vector<Action> without_missing(std::vector<Action> list, const PipelineShape& shape) {
  std::erase_if(list, [&](const Action& action) { return action.microbatch >= shape.microbatches; });
  return list;
}

// Section 2.3.2, figure 3: twice as many warm-up forwards as 1F1B; a weight gradient after each input gradient, except
// for the last 2r, whose weight gradients wait until the end.
std::vector<Action> zb_h2_list(const PipelineShape& shape, std::int32_t rank) {
  const std::int32_t p = shape.ranks;
  const std::int32_t m = written(shape);
  RankList list(p, m);
  for (std::int32_t k = 0; k < 2 * (p - 1 - rank) + 1; ++k) list.forward(rank);
  const std::int32_t first_late = m - (2 * p - 1);
  for (std::int32_t j = 0; j < m; ++j) {
    list.input_gradient(rank);
    if (j < first_late || j >= first_late + 2 * rank) list.weight_gradient();
    list.forward(rank);
  }
  while (list.weight_gradient()) {
  }
  return list.take();
}

// Section 6, on a V of two chunks: chunk 0 goes down the ranks, chunk 1 comes back.
class ZbV {
 public:
  ZbV(const PipelineShape& shape, std::int32_t rank)
      : p_(shape.ranks), r_(rank), list_(2 * shape.ranks, written(shape)) {}

  std::vector<Action> list() {
    for (std::int32_t k = 0; k < 2 * (p_ - r_) - 1; ++k) forward(0);
    for (std::int32_t k = 0; k < r_; ++k) {
      forward(1);
      forward(0);
    }
    for (std::int32_t k = 0; k < p_ - r_; ++k) {
      forward(1);
      backward(1, true);
    }
    while (list_.has_forward(stage(0)) || list_.has_forward(stage(1))) {
      forward(0);
      backward(0, true);
      forward(1);
      backward(1, true);
    }
    for (std::int32_t k = 0; k < r_; ++k) {
      backward(0, false);
      backward(1, false);
    }
    while (list_.has_backward(stage(1))) backward(1, false);
    while (list_.has_backward(stage(0))) backward(0, true);
    for (std::int32_t chunk : {1, 0}) {
      while (list_.weight_gradient(stage(chunk))) {
      }
    }
    return list_.take();
  }

 private:
  std::int32_t stage(std::int32_t chunk) const { return chunk == 0 ? r_ : 2 * p_ - 1 - r_; }
  void forward(std::int32_t chunk) { list_.forward(stage(chunk)); }
  void backward(std::int32_t chunk, bool with_weights) {
    if (list_.input_gradient(stage(chunk)) && with_weights) list_.weight_gradient(stage(chunk));
  }

  std::int32_t p_;
  std::int32_t r_;
  RankList list_;
};

}  // namespace

Schedule zb_h2(const PipelineShape& shape) {
  return schedule_of(shape.ranks, shape.microbatches, shape.ranks, looped_placement(shape.ranks, 1),
                     [&](std::int32_t rank) { return without_missing(zb_h2_list(shape, rank), shape); });
}

Schedule zb_v(const PipelineShape& shape) {
  return schedule_of(shape.ranks, shape.microbatches, 2 * shape.ranks, folded_placement(shape.ranks, 2),
                     [&](std::int32_t rank) { return without_missing(ZbV(shape, rank).list(), shape); });
}

namespace {

constexpr std::int32_t kNotYet = std::numeric_limits<std::int32_t>::max();

// Actions per rank to look ahead, times the number of ranks: longer than a block's round trip through the pipe.
constexpr std::size_t kWindow = 8;

// Change of the held activations by an action.
std::int32_t change_of(Op op) {
  if (op == Op::forward) return 1;
  return op == Op::backward || op == Op::weight_gradient ? -1 : 0;
}

std::int32_t most_held(const Schedule& schedule) {
  std::int32_t most = 0;
  for (const auto& list : schedule.of_rank) {
    std::int32_t held = 0;
    for (const Action& action : list) most = std::max(most, held += change_of(action.op));
  }
  return most;
}

class Reordering {
 public:
  explicit Reordering(const Schedule& schedule)
      : s_(schedule),
        most_(most_held(schedule)),
        held_(schedule.of_rank.size()),
        ready_(num_products(schedule), kNotYet) {
    for (const auto& list : schedule.of_rank) left_.emplace_back(list.begin(), list.end());
    made_ = schedule;
    for (auto& list : made_.of_rank) list.clear();
  }

  Schedule run() {
    std::size_t left = 0;
    for (const auto& list : left_) left += list.size();
    for (std::int32_t slot = 0; left > 0; ++slot) {
      for (std::size_t r = 0; r < left_.size(); ++r) {
        if (const auto chosen = choose(r, slot)) {
          take(r, *chosen, slot);
          --left;
        }
      }
    }
    return std::move(made_);
  }

 private:
  bool is_ready(const Action& action, std::int32_t slot) const {
    for (const Need& need : needs_of(s_, action)) {
      if (ready_[product_index(s_, need)] > slot) return false;
    }
    return true;
  }

  // The first action that can run and leaves memory for those before it. Once a rank has no forwards left, actions that
  // other ranks wait for go before weight gradients.
  std::optional<std::size_t> choose(std::size_t r, std::int32_t slot) const {
    const auto& list = left_[r];
    const bool in_turn = any_forward(list);
    std::optional<std::size_t> weights;
    std::int32_t held = held_[r];
    std::int32_t highest = held;
    const std::size_t end = std::min(list.size(), kWindow * left_.size());
    for (std::size_t k = 0; k < end; ++k) {
      const bool fits = change_of(list[k].op) <= 0 || highest < most_;
      if (fits && is_ready(list[k], slot)) {
        if (in_turn || list[k].op != Op::weight_gradient) return k;
        if (!weights) weights = k;
      }
      held += change_of(list[k].op);
      highest = std::max(highest, held);
    }
    return weights;
  }

  static bool any_forward(const std::deque<Action>& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return action.op == Op::forward; });
  }

  void take(std::size_t r, std::size_t k, std::int32_t slot) {
    auto& list = left_[r];
    const Action action = list[k];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(k));
    held_[r] += change_of(action.op);
    made_.of_rank[r].push_back(action);
    const auto product = product_of(action.op);
    if (product) ready_[product_index(s_, {*product, action.stage, action.microbatch})] = slot + 1;
  }

  const Schedule& s_;
  std::int32_t most_;
  std::vector<std::deque<Action>> left_;  // per rank, in the old order
  std::vector<std::int32_t> held_;
  std::vector<std::int32_t> ready_;  // per product: the first slot in which it is available
  Schedule made_;
};

}  // namespace

Schedule reordered(const Schedule& schedule) {
  const Times slots{1, 1, 1};
  Schedule reordered = Reordering(schedule).run();
  const Spans before = spans_of(schedule, slots, play(schedule, slots));
  const Spans after = spans_of(reordered, slots, play(reordered, slots));
  const bool better = after.own < before.own || (after.own == before.own && after.makespan < before.makespan);
  return better ? reordered : schedule;
}

// V-Half and V-Min: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory, arXiv:2405.15362), section 4: a
// building block on a V of two chunks, repeated every six slots, then reordered at both ends. Every action takes one
// slot.
namespace {

constexpr std::int32_t kPeriod = 6;  // two forwards, two input gradients, two weight gradients

// The slots of the first microbatch on a rank.
struct FirstSlots {
  std::int32_t forward0;
  std::int32_t forward1;
  std::int32_t gradient1;
  std::int32_t gradient0;
};
using BlockOf = std::function<FirstSlots(std::int32_t p, std::int32_t rank)>;

// Weight gradients fill the free slots, oldest first.
void place_weight_gradients(std::vector<Placed>& placed) {
  std::deque<Action> pending;
  std::vector<Placed> weights;
  std::int32_t slot = 0;
  const auto fill_until = [&](std::int32_t end) {
    for (; slot < end; ++slot) {
      if (pending.empty()) continue;
      weights.push_back({slot, pending.front()});
      pending.pop_front();
    }
  };
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.slot < b.slot; });
  for (const Placed& entry : placed) {
    fill_until(entry.slot);
    slot = entry.slot + 1;
    if (entry.action.op != Op::input_gradient) continue;
    pending.push_back({Op::weight_gradient, entry.action.stage, entry.action.microbatch});
  }
  fill_until(slot + static_cast<std::int32_t>(pending.size()));
  placed.insert(placed.end(), weights.begin(), weights.end());
}

Schedule v_schedule(const PipelineShape& shape, const BlockOf& block_of) {
  const std::int32_t p = shape.ranks;
  return schedule_of(p, shape.microbatches, 2 * p, folded_placement(p, 2), [&](std::int32_t r) {
    const FirstSlots block = block_of(p, r);
    const std::int32_t back = 2 * p - 1 - r;
    std::vector<Placed> placed;
    for (std::int32_t j = 0; j < shape.microbatches; ++j) {
      placed.push_back({block.forward0 + kPeriod * j, {Op::forward, r, j}});
      placed.push_back({block.forward1 + kPeriod * j, {Op::forward, back, j}});
      placed.push_back({block.gradient1 + kPeriod * j, {Op::input_gradient, back, j}});
      placed.push_back({block.gradient0 + kPeriod * j, {Op::input_gradient, r, j}});
    }
    place_weight_gradients(placed);
    return in_order_of_slots(std::move(placed));
  });
}

}  // namespace

Schedule v_min_block(const PipelineShape& shape) {
  return v_schedule(shape, [](std::int32_t p, std::int32_t i) {
    const std::int32_t gap = p % 3 == 0 ? 2 : 0;
    return FirstSlots{i, 2 * p - 1 - i, 2 * p + gap + i, 4 * p + gap - 1 - i};
  });
}

Schedule v_half_block(const PipelineShape& shape) {
  return v_schedule(shape, [](std::int32_t p, std::int32_t i) {
    const std::int32_t gap = p % 2 == 0 ? 3 : 0;
    return FirstSlots{2 * i, 3 * p - 2 - i, 3 * p - 1 + gap + 2 * i, 6 * p + gap - 2 - i};
  });
}

Schedule v_min(const PipelineShape& shape) {
  return reordered(v_min_block(shape));
}

Schedule v_half(const PipelineShape& shape) {
  return reordered(v_half_block(shape));
}

}  // namespace lockstep::schedules
