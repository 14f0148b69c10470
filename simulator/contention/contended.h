// A step whose pieces slow each other down, as ranks share the cores and the memory of one machine: in virtual time, by
// the simulator's engine.
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

// What runs beside a piece at one moment, on all ranks, itself among it.
struct Company {
  std::int32_t kernels = 0;
  std::int32_t collectives = 0;  // members of collectives, each counted once
  bool own_collective = false;   // of a kernel: its rank is in a collective that has a thread of its own
  double computing_share = 0;    // of a collective: its members that compute
};

// How many times as long as alone a piece takes, were its company always this. `task`: of `rank`.
using Slowdown = std::function<double(std::int32_t rank, std::size_t task, const Company& company)>;

// Each kernel and collective is stretched for as long as it has company: the step is played again and again until the
// company that a piece has is that of the step as it is then. Collectives in lanes that are not `beside` are no
// company of kernels of their own rank.
Simulation play_contended(const schedules::Step& priced, const LanesBeside& beside, const Slowdown& slowdown);

}  // namespace lockstep::simulator
