// Simulation of a step whose tasks slow each other down, because ranks share the cores and the memory of one machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "schedules/step/step.h"
#include "simulator/engine/engine.h"

namespace lockstep::simulator {

// A step whose amounts are all picoseconds (with_whole_messages()): lanes of a rank run side by side and slow nobody
// down.
Simulation play(const schedules::Step& priced);

// A message is one piece of time, whoever spends it: a receive's picoseconds go to its send.
schedules::Step with_whole_messages(schedules::Step step);

// Lanes whose collectives have threads of their own; those of others run in the rank's thread, which has the kernels.
using LanesBeside = std::array<bool, schedules::kNumLanes>;

// Tasks that run at one moment, on all ranks; the task that is asked about is among them.
struct Concurrent {
  std::int32_t kernels = 0;
  std::int32_t collectives = 0;  // members of collectives, each counted once
  bool own_collective = false;   // of a kernel: its rank is in a collective that has a thread of its own
  double computing_share = 0;    // of a collective: the share of its members that compute
};

// The factor by which a task takes longer than alone while `concurrent` runs. `task`: its index on `rank`.
using Slowdown = std::function<double(std::int32_t rank, std::size_t task, const Concurrent& concurrent)>;

// Stretches each kernel and collective by its slowdown. As the stretched tasks overlap with others than before, the
// step is simulated again and again until its makespan settles. A collective in a lane that is not `beside` runs in the
// rank's own thread and does not slow the kernels of its rank down.
Simulation play_contended(const schedules::Step& priced, const LanesBeside& beside, const Slowdown& slowdown);

}  // namespace lockstep::simulator
