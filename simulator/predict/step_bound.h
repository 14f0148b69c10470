// A time below which no simulation of a step comes.
#pragma once

#include <vector>

#include "schedules/schedule.h"
#include "workload/build_step.h"

namespace lockstep::simulator {

// The largest over all ranks of: the forwards that come before its first, its own work, and the backwards that come
// after its last; then the slowest rank's optimizer, which waits for all (predict()'s steps have that barrier).
// `works`: one for each stage, their collectives folded into kernels. Messages and reductions count nothing.
double step_bound_s(const schedules::Schedule& schedule, const std::vector<workload::StageWork>& works);

}  // namespace lockstep::simulator
