// Simulation of a step whose tasks slow each other down, as ranks share the cores and the memory of one machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "schedules/step/step.h"
#include "simulator/engine/engine.h"

namespace lockstep::simulator {

// Simulates a step whose amounts are all picoseconds (with_whole_messages()), without any contention.
Simulation play(const schedules::Step& priced);

// Moves each receive's picoseconds to its send, as the simulator times a message as a whole.
schedules::Step with_whole_messages(schedules::Step step);

// [lane]: true if the lane's collectives have a thread of their own; collectives of other lanes run in the rank's
// thread, as kernels do.
using LanesBeside = std::array<bool, schedules::kNumLanes>;

// Tasks that run at the same time, on all ranks, including the task in question.
struct Concurrent {
  std::int32_t kernels = 0;
  std::int32_t collectives = 0;  // members of collectives, each counted once
  bool own_collective = false;   // kernels: the rank is in a collective that has a thread of its own
  double computing_share = 0;    // collectives: share of the members that compute
};

// Returns the factor by which a task takes longer than alone while `concurrent` runs. `task`: its index on `rank`.
using Slowdown = std::function<double(std::int32_t rank, std::size_t task, const Concurrent& concurrent)>;

// Stretches each kernel and collective by its slowdown. As stretched tasks overlap other tasks than before, the step is
// simulated repeatedly until its makespan settles. A collective in a lane that is not `own_thread` runs in the rank's
// own thread and does not slow the kernels of its rank down.
Simulation play_contended(const schedules::Step& priced, const LanesBeside& own_thread, const Slowdown& slowdown);

}  // namespace lockstep::simulator
