// Hand-made schedules of Qi et al. 2023 (Zero Bubble Pipeline Parallelism, arXiv:2401.10241).
#include <algorithm>

#include "schedules/generators/rank_list.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {
namespace {

// With fewer than 2p - 1 microbatches the order is that of 2p - 1, less the missing ones.
std::int32_t written(const PipelineShape& shape) {
  return std::max(shape.microbatches, 2 * shape.ranks - 1);
}
void drop_what_is_not_there(Schedule& made) {
  for (auto& list : made.of_rank) {
    std::erase_if(list, [&](const Action& action) { return action.microbatch >= made.num_microbatches; });
  }
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
  Schedule made{.name = "zb_h2",
                .num_microbatches = shape.microbatches,
                .stages_per_pipe = shape.ranks,
                .rank_of_stage = looped_placement(shape.ranks, 1)};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) made.of_rank.push_back(zb_h2_list(shape, rank));
  drop_what_is_not_there(made);
  return made;
}

Schedule zb_v(const PipelineShape& shape) {
  Schedule made{.name = "zb_v",
                .num_microbatches = shape.microbatches,
                .stages_per_pipe = 2 * shape.ranks,
                .rank_of_stage = folded_placement(shape.ranks, 2)};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) made.of_rank.push_back(ZbV(shape, rank).list());
  drop_what_is_not_there(made);
  return made;
}

}  // namespace lockstep::schedules
