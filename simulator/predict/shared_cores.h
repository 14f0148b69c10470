// A step whose ranks share one host's cores, as this library's own ranks do on the CPU (Machine::measured).
#pragma once

#include <cstdint>

#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// Ranks that compute at the same time on cores of their own, of so many.
std::int32_t ranks_at_once(const Measured& measured, std::int32_t ranks);

// `alone` has kernels as one rank takes them by itself, `in_company` the same tasks as ranks_at_once() ranks take them
// together: between the two a kernel is as slow as ranks compute beside it. Where more threads run than there are
// cores (of kernels, and of collectives while their bytes move), all of them get an equal part. Collectives over
// data-parallel ranks have threads of their own, as in the trainer.
Simulation simulate_on_shared_cores(const schedules::Step& alone, const schedules::Step& in_company,
                                    const Machine& machine, const CollectiveTime& collective_time);

}  // namespace lockstep::simulator
