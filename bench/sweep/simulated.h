// --transport simulated: a sweep's plans on a machine that need not be there, in virtual time
// (simulator/network/plan_time.h). The same table and records, which say that they are simulated; nothing is verified,
// as no bytes move.
#pragma once

#include "bench/sweep/plan.h"
#include "bench/sweep/session.h"

namespace lockstep::sweep {

// Stands in a sweep's plan for a backend that runs.
const backends::Backend& simulated_backend();
inline bool is_simulated(const SessionPlan& session) {
  return session.backends.front() == &simulated_backend();
}

// Throws a usage Error where the machine has too few devices, or this one too little memory for the plans.
void run_simulated(const SessionPlan& session, const Sink& sink);

}  // namespace lockstep::sweep
