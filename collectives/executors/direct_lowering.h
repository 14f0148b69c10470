// Which lowering the direct executor takes: decided by what the checker and the deadlock search say of the plan.
#pragma once

#include "collectives/executors/direct_executor.h"
#include "collectives/plan/program.h"

namespace lockstep::executors {

// Throws Error(internal) if no lowering of the plan runs to its end, which no checked plan should bring about.
plan::Program lower_for_direct(const plan::Plan& plan, const collectives::Operation& operation,
                               const DirectOptions& options);

}  // namespace lockstep::executors
