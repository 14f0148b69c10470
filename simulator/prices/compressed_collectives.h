// Compressed collectives of gradients and weights (workload/compression.h) as tasks of a step: encoding kernels,
// exchanges, decoding kernels. They follow each other in the collective's lane, as in the trainer's thread for it;
// their contention with the device's other kernels is not priced.
#pragma once

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "workload/layout.h"

namespace lockstep::simulator {

// Replaces collectives according to Layout::compression and Layout::weight_compression.
void compress_collectives(schedules::Step& step, const workload::Layout& layout, const Machine& machine);

}  // namespace lockstep::simulator
