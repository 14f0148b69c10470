// The doors between a sweep and plans as text (docs/plan_format.md): --plan reads the user's own, --print-plan and
// --draw show what would run.
#pragma once

#include <string>
#include <vector>

#include "bench/sweep/cases.h"
#include "bench/sweep/plan.h"

namespace lockstep::sweep {

// The plans of the files that the flags name, each proved by the checker. Throws a usage Error that names file, line
// and step, what is wrong and what is allowed.
std::vector<OwnPlan> read_own_plans(const SweepFlags& flags);

// Throws a usage Error where a plan is for another number of ranks, or for another root than the flags ask for.
void check_own_plans(const SweepFlags& flags, const std::vector<OwnPlan>& plans, int num_ranks);

// The plans that the sessions would run, each once: as text that --plan reads, drawn, or both.
std::string plans_text(const SweepFlags& flags, const std::vector<SessionPlan>& sessions);

}  // namespace lockstep::sweep
