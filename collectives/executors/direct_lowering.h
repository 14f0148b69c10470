// Chooses the lowering for the direct executor, by the results of the checker and of the deadlock search on the plan.
#pragma once

#include "collectives/executors/direct_executor.h"
#include "collectives/plan/program.h"

namespace lockstep::executors {

// Throws Error(internal) if every lowering of the plan deadlocks, which must not happen for a checked plan.
plan::Program lower_for_direct(const plan::Plan& plan, const collectives::Operation& operation,
                               const DirectOptions& options);

}  // namespace lockstep::executors
