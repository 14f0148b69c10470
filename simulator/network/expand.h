// Collectives as their Plans: message by message over the links of the network, beside everything else that is on them.
// The other way is a formula (collective_time.h); on ideal links both agree.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/plan/plan.h"
#include "schedules/step/step.h"

namespace lockstep::simulator {

// The plan for a collective of so many ranks; of one lane.
using PlanChoice = std::function<plan::Plan(schedules::Comm comm, int ranks)>;
// The catalogue's ring, for all-to-all its pairwise exchange, for a shift its messages.
plan::Plan ring_plan(schedules::Comm comm, int ranks);

// Puts the steps of a plan, one after the other in the collective's lane, in place of each collective of two ranks or
// more: a send holds the lane until its bytes have left; sums and copies take `local_ps_per_byte`. Groups have to be
// whole in the step. Throws core::Error(usage) where a plan has more than one lane.
void expand_collectives(schedules::Step& step, const PlanChoice& choose, double local_ps_per_byte = 0);

}  // namespace lockstep::simulator
