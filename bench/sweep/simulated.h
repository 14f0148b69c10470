// --transport simulated: runs a sweep's plans in virtual time on a described machine, which need not exist
// (simulator/network/plan_time.h). The table and the records are the usual ones and say that they are simulated;
// nothing is verified, as no bytes move.
#pragma once

#include "bench/sweep/plan.h"
#include "bench/sweep/session.h"

namespace lockstep::sweep {

// Takes the place of a backend in the plan of a sweep.
const backends::Backend& simulated_backend();
inline bool is_simulated(const SessionPlan& session) {
  return session.backends.front() == &simulated_backend();
}

// Throws a usage Error if the described machine has too few devices, or this machine too little memory for the plans.
void run_simulated(const SessionPlan& session, const Sink& sink);

}  // namespace lockstep::sweep
