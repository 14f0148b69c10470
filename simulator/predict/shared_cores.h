// Simulation of a step whose ranks share one host's cores, as this library's ranks do on the CPU (Machine::measured).
#pragma once

#include <cstdint>
#include <span>

#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

inline constexpr double kPsPerUs = 1e6;  // picoseconds per microsecond

// Largest number of ranks that can compute on cores of their own.
std::int32_t ranks_at_once(const Measured& measured, std::int32_t ranks);

// `priced`: one step, with kernels in priced[n - 1] priced as if n ranks ran them at the same time, for n from 1 to
// ranks_at_once(). If more threads run than there are cores (kernels, and collectives while their bytes move), all get
// an equal share. Collectives over data-parallel ranks have threads of their own, as in the trainer.
Simulation simulate_on_shared_cores(std::span<const schedules::Step> priced, const Machine& machine,
                                    const CollectiveTime& collective_time);

}  // namespace lockstep::simulator
