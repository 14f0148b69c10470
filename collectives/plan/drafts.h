// Instructions while a program is still being lowered, and how they become the program's flat arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/program.h"

namespace lockstep::plan {

// An instruction while it is still growing: the program keeps the same in flat arrays.
struct Draft {
  std::vector<Wait> waits;
  std::vector<Place> sources;
  std::vector<Place> destinations;
  std::int64_t count = 0;
  bool completes = false;
  bool pushed = false;  // somebody else writes the destination; what is left is the wait for it
};

// One lane's program from its drafts. Of the waits only those stay that say something new after the lane's earlier
// ones.
LaneProgram flatten(const std::vector<Draft>& drafts, int rank, int lane);

// Puts down at every instruction whether anybody waits for it: a gate that nobody waits for need not be opened.
void mark_awaited(Program& program);

}  // namespace lockstep::plan
