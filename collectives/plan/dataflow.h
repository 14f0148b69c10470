// Parts of lowering that need no dataflow analysis: the match of sends and receives, the steps of a lane that become
// one pass, and the number of instructions that each pass is cut into. All are functions of the plan alone.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/plan/step_ids.h"

namespace lockstep::plan {

// The other end of every send and receive: [rank][lane][step]; rank -1 for other steps.
using Partners = std::vector<std::vector<std::vector<StepPlace>>>;
Partners match_channels(const Plan& plan);

// Steps of a lane that become one pass, in order: they build up `destination`.
struct Group {
  Slice destination;
  std::vector<int> steps;
  int pieces_per_chunk;       // 0: pieces cross chunk boundaries, `segments` of them
  int first_instruction = 0;  // in the lane
  int num_instructions = 0;
};

struct LaneGroups {
  std::vector<Group> groups;
  std::vector<int> group_of_step;  // [step]; -1 for sends
};

// [rank][lane]
using Grouping = std::vector<std::vector<LaneGroups>>;
Grouping group_steps(const Plan& plan, const Partners& partners, int segments, bool fuse);

// Cells (segments of chunks) [begin, end) of a group's slices that its piece `i` covers, counted from the slice's
// start.
struct CellRange {
  int begin;
  int end;
};
CellRange piece_cells(const Group& group, int i);
// Instruction, in the lane, that covers cell `i` of the group's slices.
int instruction_of_cell(const Group& group, int i);

bool overlap(const Slice& a, const Slice& b);

}  // namespace lockstep::plan
