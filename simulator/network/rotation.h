// Rotational symmetry of plans: if rotating all ranks by a period changes neither the plan nor the network, the first
// `period` ranks represent all. For example, a ring over 4,096 devices in nodes of 8 is played exactly with 8 ranks.
#pragma once

#include "collectives/plan/plan.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// The smallest period that divides the number of ranks, consists of whole switches of every level that does not join
// all ranks (on a fully used torus that does, whole rows), and by which each rank's steps equal those of the rank one
// period further: the same operations on equally many chunks, with peers at the same distance, after the same steps.
// Returns the number of ranks if there is no such period, or if messages of several ranks share a link of a torus, as
// their order would depend on the ranks' numbers. Assumes chunks of equal size.
int rotation_period(const plan::Plan& plan, const Machine& machine);

}  // namespace lockstep::simulator
