#include "schedules/generators/reorder.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "schedules/count.h"
#include "schedules/needs.h"
#include "schedules/play.h"

namespace lockstep::schedules {
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
    for (const Product product : {Product::activations, Product::gradient}) {
      if (gives(action, product)) ready_[product_index(s_, {product, action.stage, action.microbatch})] = slot + 1;
    }
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
  Schedule made = Reordering(schedule).run();
  const Spans before = spans_of(schedule, slots, play(schedule, slots));
  const Spans after = spans_of(made, slots, play(made, slots));
  const bool better = after.own < before.own || (after.own == before.own && after.makespan < before.makespan);
  return better ? made : schedule;
}

}  // namespace lockstep::schedules
