// The time of a plan on a network, by playing it on all ranks or on representatives.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "simulator/engine/links.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// Rotational symmetry of plans: if rotating all ranks by a period changes neither the plan nor the network, the first
// `period` ranks represent all. For example, a ring over 4,096 devices in nodes of 8 is played exactly with 8 ranks.

// The smallest period that divides the number of ranks, consists of whole switches of every level that does not join
// all ranks (on a fully used torus that does, whole rows), and by which each rank's steps equal those of the rank one
// period further: the same operations on equally many chunks, with peers at the same distance, after the same steps.
// Returns the number of ranks if there is no such period, or if messages of several ranks share a link of a torus, as
// their order would depend on the ranks' numbers. Assumes chunks of equal size.
int rotation_period(const plan::Plan& plan, const Machine& machine);

// The time of a plan on a machine's network, message by message in virtual time: any algorithm of the catalogue or a
// user's own plan, on any number of devices that the description has.
//
//   send         takes the ports and uplinks of its path for bytes over their bandwidth, one after the other or at once
//                as the machine says, holds its lane until the bytes have left, and arrives one latency later
//   recv         ends when its message has arrived
//   recv_reduce  likewise; executors sum in segments while the rest arrives, so the last segment's sum is what it adds
//   copy, reduce pass over the device's memory
// and the call begins with one kernel launch. The formulas of collective_time.h predict NCCL with its protocols and
// channels; this predicts Lockstep's executors, which run the plan.

class PlanTime {
 public:
  // Rank r is the machine's device r. Throws a usage Error if the machine has fewer devices. Keeps no reference.
  PlanTime(const plan::Plan& plan, const Machine& machine);
  // Plays `period` ranks, which represent all; the constructor above finds the smallest period.
  PlanTime(const plan::Plan& plan, const Machine& machine, int period);

  // The time at which the last rank is done, in picoseconds. All chunks count with the largest chunk's size.
  std::int64_t play_ps(const collectives::Operation& operation) const;

  int ranks_played() const { return period_; }

 private:
  class Playing;
  struct Step {
    plan::Op op;
    std::int32_t chunks;
    std::int32_t channel = -1;  // messages only
    std::int32_t path = -1;     // index in paths_; sends only
    std::int32_t distance = 0;  // to its peer, upwards around all ranks
    std::vector<plan::After> after;
  };
  struct Lane {
    std::int32_t rank;
    std::vector<Step> steps;
  };
  void compile(const plan::Plan& plan, const Machine& machine);

  int period_;
  int lanes_a_rank_ = 0;
  std::int32_t num_channels_ = 0;
  std::int64_t start_ps_;
  double memory_ps_per_byte_;
  std::int32_t chunks_per_block_;
  std::vector<Lane> lanes_;  // [rank * lanes_a_rank_ + lane]
  std::vector<Path> paths_;
  std::vector<Link> links_;
};

}  // namespace lockstep::simulator
