// A lower bound of a step's simulated time.
#pragma once

#include <vector>

#include "schedules/schedule.h"
#include "workload/build_step.h"

namespace lockstep::simulator {

// The largest sum, over all ranks, of the forwards before its first, its own work and the backwards after its last;
// plus the slowest rank's optimizer, which waits for all (predict()'s steps have that barrier). `works`: one per stage,
// with collectives folded into kernels. Messages and reductions do not count.
double step_bound_s(const schedules::Schedule& schedule, const std::vector<workload::StageWork>& works);

}  // namespace lockstep::simulator
