// Breakdown of each rank's time in a step that ran: compute, exposed communication, and bubbles.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// Parts that sum to the makespan, for each rank.
struct Breakdown {
  std::int64_t forward_ps = 0;
  std::int64_t backward_ps = 0;  // B, I and W
  std::int64_t recompute_ps = 0;
  std::int64_t optimizer_ps = 0;
  std::int64_t filler_ps = 0;  // work for the bubbles (schedules/passes/fill_bubbles.h)
  // Exposed communication per lane: the compute lane is idle while bytes that it waits for move in this lane. Messages
  // between stages count under `receive` where they are waited for, and under `send` where a rank waits for its own
  // message to leave.
  std::array<std::int64_t, kNumLanes> exposed_ps = {};
  // The compute lane is idle and nothing that it waits for moves: other ranks are not that far. Includes the time
  // before a rank's start and after its end.
  std::int64_t bubble_ps = 0;

  std::int64_t compute_ps() const { return forward_ps + backward_ps + recompute_ps + optimizer_ps + filler_ps; }
  std::int64_t all_exposed_ps() const;
  std::int64_t exposed_reductions_ps() const;  // gradients, among shards and over their replicas
};

// [lane]: true if the lane's tasks block the compute lane even without a dependency, as one thread runs both. Bytes
// that move there while the compute lane is idle also count as exposed.
using BlockingLanes = std::array<bool, kNumLanes>;

std::vector<Breakdown> breakdown_of(const Step& step, const StepTimeline& timeline, const BlockingLanes& blocking = {});

}  // namespace lockstep::schedules
