// Plans in the form that MSCCL runs: thread blocks in place of lanes.
//
// A thread block receives from at most one rank and sends to at most one, on one channel, and is the only one of its
// rank that uses that end of that connection: (from, to, channel) is a first-in first-out channel, whatever the numbers
// of the two thread blocks. A lane of a Plan may have any number of peers. So all thread blocks of a channel become one
// lane, and a lane becomes as many thread blocks as its peers need.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/plan/text.h"

namespace lockstep::plan {

struct ThreadBlock {
  int send_to = -1;  // ranks; -1: none
  int recv_from = -1;
  int channel = 0;
};

struct ThreadBlocks {
  Plan plan;                                     // its lanes are the thread blocks; `after` names thread blocks
  std::vector<std::vector<ThreadBlock>> blocks;  // [rank][lane of plan]
  StepLines lines;                               // [rank][lane][step] of the file; not in what split_lanes() returns
  // Input and output may be separate memory, or the same as collectives::in_place_alias() says. If they are always the
  // same, steps may write to the input.
  bool out_of_place = true;
  bool in_place = false;
};

// The same algorithm with one lane per channel, for input and output that are separate or the same. Steps stand in an
// order in which thread blocks that take turns can run them, and keep the waits for other lanes that the order of the
// lane does not imply. If the thread blocks work in place only, a chunk is read from the input until it is first
// written, then from where the write went: the output, or scratch if the input has no place in the output.
// Throws a usage Error that names `source` and the line if a step leaves its buffers, accesses of two thread blocks
// race, or a step waits forever. Fills `lines`, if given.
Plan join_channels(const ThreadBlocks& from, std::string_view source, StepLines* lines = nullptr);

// Thread blocks for a plan that has passed the checker. Each lane is a channel. Steps of a lane stay in order within a
// thread block; between thread blocks only steps that access the same memory, one of them writing, do: the rest may
// run side by side.
ThreadBlocks split_lanes(const Plan& plan);

}  // namespace lockstep::plan
