// Chimera: Li, Hoefler 2021 (arXiv:2107.06925), section 3.1: two 1F1B pipes in opposite directions, with p microbatches
// per unit, half of them in each pipe; units follow each other directly (section 3.5).
#include "schedules/generators/grid.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {
namespace {

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
  Schedule made{.name = "chimera", .num_microbatches = m, .stages_per_pipe = p, .rank_of_stage = opposite_placement(p)};
  for (std::int32_t r = 0; r < p; ++r) {
    std::vector<Placed> placed;
    for (std::int32_t unit = 0; unit < m / p; ++unit) {
      place_unit(placed, p, unit, r, r, 0);
      place_unit(placed, p, unit, p + (p - 1 - r), p - 1 - r, m / 2);
    }
    made.of_rank.push_back(in_order_of_slots(std::move(placed)));
  }
  return made;
}

}  // namespace lockstep::schedules
