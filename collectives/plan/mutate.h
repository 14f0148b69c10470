// Plans with one mistake, for tests of the checker.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/plan/check.h"

namespace lockstep::plan {

struct Mutant {
  std::string what;  // "rank 1 lane 0 step 3 (send output[0] -> 2): dropped"
  Plan plan;
};

// Calls `visit` with every plan that differs from `plan` by one edit of one step: another chunk, another peer, reduce
// for copy or copy for reduce, another count, the step dropped, swapped with the next one, or without its `after`.
void for_each_mutant(const Plan& plan, const std::function<void(const Mutant&)>& visit);

// Verdicts of the checker and of the slow interpreter on all mutants of a plan.
struct MutantTally {
  int mutants = 0;
  int rejected = 0;                 // by the checker
  int harmful = 0;                  // wrong in at least one of the random orders tried
  std::vector<std::string> missed;  // harmful, but accepted: must be empty
};

// Tries `orders` random orders of each mutant.
MutantTally tally_mutants(const Plan& plan, const CheckOptions& options, int orders, std::uint64_t seed);

}  // namespace lockstep::plan
