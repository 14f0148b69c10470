#include "collectives/plan/step_ids.h"

namespace lockstep::plan {

StepIds::StepIds(const Plan& plan) {
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    const auto& lanes = plan.ranks[at(rank)].lanes;
    for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
      for (int step = 0; step < static_cast<int>(lanes[at(lane)].size()); ++step) places_.push_back({rank, lane, step});
      first_step_.push_back(static_cast<int>(places_.size()));
    }
    first_lane_.push_back(num_lanes());
  }
}

}  // namespace lockstep::plan
