// Where a rank's time goes in a step that has run: computing, waiting for bytes that move, waiting for other ranks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// All parts together are the makespan, for each rank.
struct Breakdown {
  std::int64_t forward_ps = 0;
  std::int64_t backward_ps = 0;  // B, I and W
  std::int64_t recompute_ps = 0;
  std::int64_t optimizer_ps = 0;
  std::int64_t filler_ps = 0;  // work for the bubbles (schedules/passes/fill_bubbles.h)
  // Exposed communication: the compute lane stands still while bytes move that it waits for, in this lane. Messages
  // between stages count under `receive` where they are waited for, and under `send` where a rank waits for its own
  // message to leave.
  std::array<std::int64_t, kNumLanes> exposed_ps = {};
  // The compute lane stands still and nothing moves that it waits for: others have not come that far. A start later
  // than the first rank's and an end before the last rank's count here.
  std::int64_t bubble_ps = 0;

  std::int64_t compute_ps() const { return forward_ps + backward_ps + recompute_ps + optimizer_ps + filler_ps; }
  std::int64_t all_exposed_ps() const;
  std::int64_t exposed_reductions_ps() const;  // of gradients, among shards and over their replicas
};

// Lanes [lane] whose tasks hold up the compute lane, whether it waits for them or not, as one thread runs both. What
// moves there while the compute lane stands still is exposed, too.
using BlockingLanes = std::array<bool, kNumLanes>;

std::vector<Breakdown> breakdown_of(const Step& step, const StepTimeline& timeline, const BlockingLanes& blocking = {});

}  // namespace lockstep::schedules
