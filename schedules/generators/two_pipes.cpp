// Schedules with two pipes in opposite directions, or folded into a V: Chimera, DualPipe and DualPipeV.
#include "schedules/generators/rank_list.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "schedules/schedule.h"

namespace lockstep::schedules {
namespace {

// Chimera: Li, Hoefler 2021 (arXiv:2107.06925), section 3.1: two 1F1B pipes in opposite directions, with p microbatches
// per unit, half of them in each pipe; units follow each other directly (section 3.5).
// Forwards and backwards both take one slot. The two pipes use slots of different parity, so no slot is used twice.
void place_unit(std::vector<Placed>& placed, std::int32_t p, std::int32_t unit, std::int32_t stage,
                std::int32_t position, std::int32_t first_microbatch) {
  for (std::int32_t j = 0; j < p / 2; ++j) {
    const std::int32_t microbatch = first_microbatch + unit * (p / 2) + j;
    const std::int32_t begin = 2 * p * unit + 2 * j;
    placed.push_back({begin + position, {Op::forward, stage, microbatch}});
    placed.push_back({begin + 2 * p - 1 - position, {Op::backward, stage, microbatch}});
  }
}

}  // namespace

Schedule chimera(const PipelineShape& shape) {
  const std::int32_t p = shape.ranks;
  const std::int32_t m = shape.microbatches;
  return schedule_of(p, m, p, opposite_placement(p), [&](std::int32_t r) {
    std::vector<Placed> placed;
    for (std::int32_t unit = 0; unit < m / p; ++unit) {
      place_unit(placed, p, unit, r, r, 0);
      place_unit(placed, p, unit, p + (p - 1 - r), p - 1 - r, m / 2);
    }
    return in_order_of_slots(std::move(placed));
  });
}

// Chimera for more microbatches than ranks: Li, Hoefler 2021 (arXiv:2107.06925), section 3.5. "Forward doubling": a
// forward takes two microbatches at once and so lasts as long as a backward of one, and units of 2p microbatches follow
// each other without bubbles between them, at twice the activations. With microbatches half as large the same lists are
// "backward halving". The paper draws one example; these lists come from a rule that has its bubble at every size: a
// rank goes on forward while fewer than p/2 pairs of the pipe are in flight at its stage, else backward.
namespace {

constexpr std::int32_t kNotYet = std::numeric_limits<std::int32_t>::max();

// The forward of a pair and the backward of one microbatch both take one slot.
class Doubled {
 public:
  explicit Doubled(const PipelineShape& shape)
      : p_(shape.ranks), pairs_(shape.microbatches / 4), stages_(static_cast<std::size_t>(2 * p_)) {
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

// DualPipe and DualPipeV: DeepSeek-AI 2024 (DeepSeek-V3 Technical Report, arXiv:2412.19437), section 3.2.1; the eight
// phases are as in the authors' repository, deepseek-ai/DualPipe.
namespace {

// The list of one rank, in eight phases: work on `near`, the stage whose pipe starts nearer to this rank, and on `far`.
// `depth` counts ranks from the outside (0) to the middle (half - 1), where the pipes meet.
struct Phases {
  std::int32_t near;
  std::int32_t far;
  std::int32_t half;
  std::int32_t depth;
  std::int32_t steady;  // pairs of fused forwards and backwards

  std::vector<Action> write(RankList list) const {
    const std::int32_t ahead = half - 1 - depth;
    for (std::int32_t k = 0; k < 2 * ahead; ++k) list.forward(near);
    for (std::int32_t k = 0; k < depth + 1; ++k) {
      list.forward(near);
      list.forward(far);
    }
    for (std::int32_t k = 0; k < ahead; ++k) {
      list.input_gradient(far);
      list.weight_gradient();
      list.forward(far);
    }
    for (std::int32_t k = 0; k < steady; ++k) {
      const bool alone = k == 0 && ahead == 0;  // in the middle a microbatch comes back at once
      pair(list, near, far, !alone);
      pair(list, far, near, true);
    }
    for (std::int32_t k = 0; k < ahead; ++k) {
      list.backward(far);
      pair(list, far, near, true);
    }
    for (std::int32_t k = 0; k < depth + 1; ++k) {
      // The second half leaves the weights' gradients for later.
      backward(list, far, 2 * k > depth);
      backward(list, near, 2 * k >= depth);
    }
    for (std::int32_t k = 0; k < ahead; ++k) {
      list.weight_gradient();
      list.input_gradient(near);
    }
    while (list.weight_gradient()) {
    }
    return list.take();
  }

 private:
  static void pair(RankList& list, std::int32_t forward, std::int32_t backward, bool fused) {
    list.forward(forward);
    if (fused) list.fuse();
    list.backward(backward);
  }
  static void backward(RankList& list, std::int32_t stage, bool split) {
    if (split) {
      list.input_gradient(stage);
    } else {
      list.backward(stage);
    }
  }
};

}  // namespace

Schedule dualpipe(const PipelineShape& shape) {
  const std::int32_t p = shape.ranks;
  const std::int32_t m = shape.microbatches;
  return schedule_of(p, m, p, opposite_placement(p), [&](std::int32_t r) {
    const std::int32_t depth = std::min(r, p - 1 - r);
    const std::int32_t down = r;
    const std::int32_t up = p + (p - 1 - r);
    RankList list(2 * p, m / 2);
    list.begin_at(up, m / 2);
    const bool upper = r < p / 2;
    const Phases phases{.near = upper ? down : up,
                        .far = upper ? up : down,
                        .half = p / 2,
                        .depth = depth,
                        .steady = m / 2 - p + depth + 1};
    return phases.write(std::move(list));
  });
}

Schedule dualpipe_v(const PipelineShape& shape) {
  const std::int32_t p = shape.ranks;
  return schedule_of(p, shape.microbatches, 2 * p, folded_placement(p, 2), [&](std::int32_t r) {
    const Phases phases{
        .near = r, .far = 2 * p - 1 - r, .half = p, .depth = r, .steady = shape.microbatches - 2 * p + r + 1};
    return phases.write(RankList(2 * p, shape.microbatches));
  });
}

}  // namespace lockstep::schedules
