// DualPipe and DualPipeV: DeepSeek-AI 2024 (DeepSeek-V3 Technical Report, arXiv:2412.19437), section 3.2.1; the eight
// phases are those of the authors' repository, deepseek-ai/DualPipe.
#include <algorithm>

#include "schedules/generators/rank_list.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {
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
  Schedule made{
      .name = "dualpipe", .num_microbatches = m, .stages_per_pipe = p, .rank_of_stage = opposite_placement(p)};
  for (std::int32_t r = 0; r < p; ++r) {
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
    made.of_rank.push_back(phases.write(std::move(list)));
  }
  return made;
}

Schedule dualpipe_v(const PipelineShape& shape) {
  const std::int32_t p = shape.ranks;
  Schedule made{.name = "dualpipe_v",
                .num_microbatches = shape.microbatches,
                .stages_per_pipe = 2 * p,
                .rank_of_stage = folded_placement(p, 2)};
  for (std::int32_t r = 0; r < p; ++r) {
    const Phases phases{
        .near = r, .far = 2 * p - 1 - r, .half = p, .depth = r, .steady = shape.microbatches - 2 * p + r + 1};
    made.of_rank.push_back(phases.write(RankList(2 * p, shape.microbatches)));
  }
  return made;
}

}  // namespace lockstep::schedules
