// Ranks of a plan that do the same at the same time: where turning all ranks by a period changes neither the plan nor
// the network, the first ranks, a period of them, stand for all. A ring over 4,096 devices in nodes of 8 is played with
// 8 ranks so, exactly.
#pragma once

#include "collectives/plan/plan.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// The smallest period that divides the ranks, is whole switches of every level that does not join all of them (of a
// torus that does, whole rows, if all of it is taken), and by which each rank's steps are those of the rank a period
// further on: the same operations on as many chunks, with peers as far away, after the same steps. All ranks where
// there is none, or where messages of several ranks share a link of a torus: which of two that come at one time is
// first would depend on the ranks' numbers. The sizes of a plan's chunks are taken to be equal.
int rotation_period(const plan::Plan& plan, const Machine& machine);

}  // namespace lockstep::simulator
