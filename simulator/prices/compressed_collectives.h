// Collectives of gradients and weights that send something else (workload/compression.h), as tasks of a step: what a
// rank computes before it sends, the exchanges, what it computes of what came. They follow each other in the
// collective's lane, as the trainer's one thread of it does; that they take the device from its other kernels is not
// priced.
#pragma once

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "workload/layout.h"

namespace lockstep::simulator {

// As Layout::compression and Layout::weight_compression say.
void compress_collectives(schedules::Step& step, const workload::Layout& layout, const Machine& machine);

}  // namespace lockstep::simulator
