// V-Half and V-Min: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory, arXiv:2405.15362), section 4: a
// building block on a V of two chunks, repeated every six slots, then reordered at both ends. Every action takes one
// slot.
#include <algorithm>
#include <deque>
#include <functional>

#include "schedules/generators/grid.h"
#include "schedules/generators/reorder.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kPeriod = 6;  // two forwards, two input gradients, two weight gradients

// The slots of the first microbatch on a rank.
struct Block {
  std::int32_t forward0;
  std::int32_t forward1;
  std::int32_t gradient1;
  std::int32_t gradient0;
};
using BlockOf = std::function<Block(std::int32_t p, std::int32_t rank)>;

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
  for (const Placed& one : placed) {
    fill_until(one.slot);
    slot = one.slot + 1;
    if (one.action.op != Op::input_gradient) continue;
    pending.push_back({Op::weight_gradient, one.action.stage, one.action.microbatch});
  }
  fill_until(slot + static_cast<std::int32_t>(pending.size()));
  placed.insert(placed.end(), weights.begin(), weights.end());
}

Schedule v_schedule(const char* name, const PipelineShape& shape, const BlockOf& block_of) {
  const std::int32_t p = shape.ranks;
  Schedule made{.name = name,
                .num_microbatches = shape.microbatches,
                .stages_per_pipe = 2 * p,
                .rank_of_stage = folded_placement(p, 2)};
  for (std::int32_t r = 0; r < p; ++r) {
    const Block block = block_of(p, r);
    const std::int32_t back = 2 * p - 1 - r;
    std::vector<Placed> placed;
    for (std::int32_t j = 0; j < shape.microbatches; ++j) {
      placed.push_back({block.forward0 + kPeriod * j, {Op::forward, r, j}});
      placed.push_back({block.forward1 + kPeriod * j, {Op::forward, back, j}});
      placed.push_back({block.gradient1 + kPeriod * j, {Op::input_gradient, back, j}});
      placed.push_back({block.gradient0 + kPeriod * j, {Op::input_gradient, r, j}});
    }
    place_weight_gradients(placed);
    made.of_rank.push_back(in_order_of_slots(std::move(placed)));
  }
  return made;
}

}  // namespace

Schedule v_min_block(const PipelineShape& shape) {
  return v_schedule("v_min", shape, [](std::int32_t p, std::int32_t i) {
    const std::int32_t gap = p % 3 == 0 ? 2 : 0;
    return Block{i, 2 * p - 1 - i, 2 * p + gap + i, 4 * p + gap - 1 - i};
  });
}

Schedule v_half_block(const PipelineShape& shape) {
  return v_schedule("v_half", shape, [](std::int32_t p, std::int32_t i) {
    const std::int32_t gap = p % 2 == 0 ? 3 : 0;
    return Block{2 * i, 3 * p - 2 - i, 3 * p - 1 + gap + 2 * i, 6 * p + gap - 2 - i};
  });
}

Schedule v_min(const PipelineShape& shape) {
  return reordered(v_min_block(shape));
}

Schedule v_half(const PipelineShape& shape) {
  return reordered(v_half_block(shape));
}

}  // namespace lockstep::schedules
