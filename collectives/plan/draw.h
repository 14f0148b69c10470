// Step diagrams of plans, for people: a row a rank, a column a round.
#pragma once

#include <string>

#include "collectives/plan/check.h"

namespace lockstep::plan {

// Columns are the rounds of count.h. A cell is what the rank sends in that round: "2>1" chunk 2 to rank 1, where it is
// stored; "2+>1" where it is added to what is there; "0-3>1" chunks 0 to 3; "1.0>2", where nothing is reduced, chunk 0
// of rank 1's input. `contents` as check() gave them.
std::string draw(const Plan& plan, const Contents& contents);

}  // namespace lockstep::plan
