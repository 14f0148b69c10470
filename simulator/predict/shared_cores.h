// A step whose ranks share one host's cores, as this library's own ranks do on the CPU (Machine::measured).
#pragma once

#include <cstdint>
#include <span>

#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// The most ranks that have cores of their own while they compute.
std::int32_t ranks_at_once(const Measured& measured, std::int32_t ranks);

// `priced`: one step, whose kernels in priced[n - 1] are priced as they run on n ranks at the same time, from 1 to
// ranks_at_once(). Where more threads run than there are cores (of kernels, and of collectives while their bytes move),
// all of them get an equal part. Collectives over data-parallel ranks have threads of their own, as in the trainer.
Simulation simulate_on_shared_cores(std::span<const schedules::Step> priced, const Machine& machine,
                                    const CollectiveTime& collective_time);

}  // namespace lockstep::simulator
