// Plans as text in a sweep (docs/plan_format.md): --plan reads the user's own, --print-plan and --draw show those that
// would run.
#pragma once

#include <string>
#include <vector>

#include "bench/sweep/cases.h"
#include "bench/sweep/plan.h"

namespace lockstep::sweep {

// Reads the plans of the files that the flags name; the checker proves each. Throws a usage Error that names the file,
// line and step, what is wrong and what is allowed.
std::vector<OwnPlan> read_own_plans(const SweepFlags& flags);

// Throws a usage Error if a plan is for another number of ranks, or for another root than the flags ask for.
void check_own_plans(const SweepFlags& flags, const std::vector<OwnPlan>& plans, int num_ranks);

// Plans that the sessions would run, each once: as text that --plan reads, as a drawing, or both.
std::string plans_text(const SweepFlags& flags, const std::vector<SessionPlan>& sessions);

}  // namespace lockstep::sweep
