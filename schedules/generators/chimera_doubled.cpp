// Chimera for more microbatches than ranks: Li, Hoefler 2021 (arXiv:2107.06925), section 3.5. "Forward doubling": a
// forward takes two microbatches at once and so lasts as long as a backward of one, and units of 2p microbatches follow
// each other without bubbles between them, at twice the activations. With microbatches half as large the same lists are
// "backward halving". The paper draws one example; these lists come from a rule that has its bubble at every size: a
// rank goes on forward while fewer than p/2 pairs of the pipe are in flight at its stage, else backward.
#include <array>
#include <limits>
#include <optional>

#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kNotYet = std::numeric_limits<std::int32_t>::max();

// The forward of a pair and the backward of one microbatch both take one slot.
class Doubled {
 public:
  explicit Doubled(const PipelineShape& shape)
      : p_(shape.ranks), pairs_(shape.microbatches / 4), stages_(static_cast<std::size_t>(2 * p_)) {
    made_.name = "chimera_doubled";
    made_.num_microbatches = shape.microbatches;
    made_.stages_per_pipe = p_;
    made_.rank_of_stage = opposite_placement(p_);
    made_.of_rank.resize(static_cast<std::size_t>(p_));
  }

  Schedule run() {
    std::int32_t left = 2 * p_ * 3 * pairs_;
    for (std::int32_t slot = 0; left > 0; ++slot) {
      for (std::int32_t r = 0; r < p_; ++r) left -= take_turn(r, slot) ? 1 : 0;
    }
    return std::move(made_);
  }

 private:
  struct Stage {
    std::vector<std::int32_t> forward_ends = {};   // per pair
    std::vector<std::int32_t> backward_ends = {};  // per microbatch
    auto forwards() const { return static_cast<std::int32_t>(forward_ends.size()); }
    auto backwards() const { return static_cast<std::int32_t>(backward_ends.size()); }
  };

  Stage& stage(std::int32_t s) { return stages_[static_cast<std::size_t>(s)]; }
  const Stage& stage(std::int32_t s) const { return stages_[static_cast<std::size_t>(s)]; }
  static std::int32_t end_of(const std::vector<std::int32_t>& ends, std::int32_t k) {
    return k < static_cast<std::int32_t>(ends.size()) ? ends[static_cast<std::size_t>(k)] : kNotYet;
  }

  bool can_forward(std::int32_t s, std::int32_t slot) const {
    const std::int32_t pair = stage(s).forwards();
    if (pair == pairs_ || pair - stage(s).backwards() / 2 == p_ / 2) return false;
    return s % p_ == 0 || end_of(stage(s - 1).forward_ends, pair) <= slot;
  }
  bool can_backward(std::int32_t s, std::int32_t slot) const {
    const std::int32_t microbatch = stage(s).backwards();
    if (microbatch == 2 * pairs_ || end_of(stage(s).forward_ends, microbatch / 2) > slot) return false;
    return (s + 1) % p_ == 0 || end_of(stage(s + 1).backward_ends, microbatch) <= slot;
  }

  // Prefers, of two stages, the one with the older work, then the one nearer to the start of its pipe (for backwards,
  // to its end): the pipes are mirror images.
  bool take_turn(std::int32_t rank, std::int32_t slot) {
    const std::array<std::int32_t, 2> own{rank, p_ + (p_ - 1 - rank)};
    std::optional<std::int32_t> forward;
    std::optional<std::int32_t> backward;
    for (const std::int32_t s : own) {
      if (can_forward(s, slot) && (!forward || is_before(s, *forward))) forward = s;
      if (can_backward(s, slot) && (!backward || is_behind(s, *backward))) backward = s;
    }
    if (forward) {
      add_forward(rank, *forward, slot);
    } else if (backward) {
      add_backward(rank, *backward, slot);
    }
    return forward || backward;
  }
  bool is_before(std::int32_t s, std::int32_t other) const {
    if (stage(s).forwards() != stage(other).forwards()) return stage(s).forwards() < stage(other).forwards();
    return s % p_ < other % p_;
  }
  bool is_behind(std::int32_t s, std::int32_t other) const {
    if (stage(s).backwards() != stage(other).backwards()) return stage(s).backwards() < stage(other).backwards();
    return s % p_ > other % p_;
  }

  std::int32_t first_microbatch(std::int32_t s) const { return s < p_ ? 0 : 2 * pairs_; }
  void add_forward(std::int32_t rank, std::int32_t s, std::int32_t slot) {
    auto& list = made_.of_rank[static_cast<std::size_t>(rank)];
    const std::int32_t first = first_microbatch(s) + 2 * stage(s).forwards();
    list.push_back({Op::forward, s, first, true});
    list.push_back({Op::forward, s, first + 1});
    stage(s).forward_ends.push_back(slot + 1);
  }
  void add_backward(std::int32_t rank, std::int32_t s, std::int32_t slot) {
    auto& list = made_.of_rank[static_cast<std::size_t>(rank)];
    list.push_back({Op::backward, s, first_microbatch(s) + stage(s).backwards()});
    stage(s).backward_ends.push_back(slot + 1);
  }

  std::int32_t p_;
  std::int32_t pairs_;  // per pipe
  std::vector<Stage> stages_;
  Schedule made_;
};

}  // namespace

Schedule chimera_doubled(const PipelineShape& shape) {
  return Doubled(shape).run();
}

}  // namespace lockstep::schedules
