// Numbers all steps and lanes of a plan from 0 on, so that facts about them can be kept in flat arrays.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {

struct StepPlace {
  int rank = -1;
  int lane = -1;
  int step = -1;
  friend bool operator==(const StepPlace&, const StepPlace&) = default;
};

// Steps are numbered by rank, then lane, then order. Holds no reference to the plan.
class StepIds {
 public:
  StepIds() = default;
  explicit StepIds(const Plan& plan);

  int num_steps() const { return static_cast<int>(places_.size()); }
  int num_lanes() const { return static_cast<int>(first_step_.size()) - 1; }  // all ranks' together

  int lane_id(int rank, int lane) const { return first_lane_[at(rank)] + lane; }
  int lanes_of(int rank) const { return first_lane_[at(rank) + 1] - first_lane_[at(rank)]; }
  int lane_begin(int lane_id) const { return first_step_[at(lane_id)]; }  // step id
  int lane_end(int lane_id) const { return first_step_[at(lane_id) + 1]; }
  int id(int rank, int lane, int step) const { return lane_begin(lane_id(rank, lane)) + step; }
  int id(StepPlace place) const { return id(place.rank, place.lane, place.step); }
  // Id of the step that a step of this rank waits for; -1 if `after` is none.
  int id(int rank, After after) const { return after.lane < 0 ? -1 : id(rank, after.lane, after.step); }

  const StepPlace& place(int step_id) const { return places_[at(step_id)]; }
  int lane_of(int step_id) const { return lane_id(place(step_id).rank, place(step_id).lane); }

 private:
  std::vector<int> first_lane_{0};  // [rank], plus one for the end
  std::vector<int> first_step_{0};  // [lane id], plus one for the end
  std::vector<StepPlace> places_;   // [step id]
};

inline const Step& step_at(const Plan& plan, const StepPlace& place) {
  return plan.ranks[static_cast<std::size_t>(place.rank)]
      .lanes[static_cast<std::size_t>(place.lane)][static_cast<std::size_t>(place.step)];
}

}  // namespace lockstep::plan
