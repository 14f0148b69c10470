// Collectives of a step as messages on a network.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "schedules/step/step.h"

namespace lockstep::simulator {

// Maps a step's collectives to collectives::Kind.

inline collectives::Kind kind_of(schedules::Comm comm) {
  switch (comm) {
    case schedules::Comm::all_gather:
      return collectives::Kind::all_gather;
    case schedules::Comm::reduce_scatter:
      return collectives::Kind::reduce_scatter;
    case schedules::Comm::all_to_all:
      return collectives::Kind::all_to_all;
    case schedules::Comm::broadcast:
      return collectives::Kind::broadcast;
    case schedules::Comm::reduce:
      return collectives::Kind::reduce;
    case schedules::Comm::shift:
      return collectives::Kind::send_recv;
    default:
      return collectives::Kind::all_reduce;
  }
}

// Expands collectives to the messages of their Plans, which share the network's links with all other messages. The
// alternative is a formula (collective_time.h); on ideal links both agree.

// Returns the plan of a collective among `ranks` ranks; it must have one lane.
using PlanChoice = std::function<plan::Plan(schedules::Comm comm, int ranks)>;
// The catalogue's ring; for all-to-all its pairwise exchange; for a shift its messages.
plan::Plan ring_plan(schedules::Comm comm, int ranks);

// Replaces each collective of two or more ranks by the steps of its plan, in sequence in the collective's lane: a send
// occupies the lane until its bytes have left; sums and copies take `local_ps_per_byte`. All members of a group have to
// be ranks of the step. Throws core::Error(usage) if a plan has more than one lane.
void expand_collectives(schedules::Step& step, const PlanChoice& choose, double local_ps_per_byte = 0);

}  // namespace lockstep::simulator
