// Step diagrams of plans, for people: one row per rank, one column per round.
#pragma once

#include <string>

#include "collectives/plan/check.h"

namespace lockstep::plan {

// Columns are the rounds of count.h. A cell shows what the rank sends in that round: "2>1" chunk 2 to rank 1, which
// stores it; "2+>1" chunk 2 to rank 1, which adds it; "0-3>1" chunks 0 to 3; "1.0>2", if nothing is reduced, chunk 0 of
// rank 1's input. `contents` is check()'s result.
std::string draw(const Plan& plan, const Contents& contents);

}  // namespace lockstep::plan
