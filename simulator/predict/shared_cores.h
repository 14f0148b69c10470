// A step whose ranks share one host's cores, as this library's own ranks do on the CPU (Machine::measured).
#pragma once

#include <cstdint>

#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// The most ranks that have cores of their own while they compute.
std::int32_t ranks_at_once(const Measured& measured, std::int32_t ranks);

// `alone`: the step with kernels priced as they run by themselves; `concurrent_step`: the same tasks priced as they run
// on ranks_at_once() ranks at the same time. A kernel's slowdown is interpolated between the two by the number of ranks
// that compute. Where more threads run than there are cores (of kernels, and of collectives while their bytes move),
// all of them get an equal part. Collectives over data-parallel ranks have threads of their own, as in the trainer.
Simulation simulate_on_shared_cores(const schedules::Step& alone, const schedules::Step& concurrent_step,
                                    const Machine& machine, const CollectiveTime& collective_time);

}  // namespace lockstep::simulator
