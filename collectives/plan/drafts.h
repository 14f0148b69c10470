// Instructions while a program is still being lowered, and their conversion to the program's flat arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/program.h"

namespace lockstep::plan {

// An instruction while it still grows: the program keeps the same in flat arrays.
struct Draft {
  std::vector<Wait> waits;
  std::vector<Place> sources;
  std::vector<Place> destinations;
  std::int64_t count = 0;
  bool completes = false;
  bool pushed = false;  // another lane writes the destination; only the wait for it is left
};

// Makes one lane's program from its drafts. Waits that the lane's earlier waits imply are dropped.
LaneProgram flatten(const std::vector<Draft>& drafts, int rank, int lane);

// Marks every instruction that another lane waits for: only these need to be signalled.
void mark_awaited(Program& program);

}  // namespace lockstep::plan
