// From a Plan to a Program: dataflow analysis, fusion, segments.
//
// A checked plan is run once symbolically, in any legal order, at the granularity of cells (a chunk's segment in one
// rank's memory). This gives for every read the instruction that wrote the cell last, and for every write the
// instructions that may still read it. The program gets only these waits: sends, channels and `after` edges are gone.
//   fusion    runs of steps of a lane that build up one destination become one pass over several sources
//   push      a sender stores data that it has just produced at the receiver: one pass, several destinations
//   segments  every pass is cut into pieces, so that a reader can follow its writer closely
#pragma once

#include "collectives/plan/program.h"

namespace lockstep::plan {

struct LowerOptions {
  int segments = 1;  // pieces of every pass
  bool fuse = true;
  // The pass that produces a piece also stores it where its receivers would have copied it to.
  bool push = false;
};

// The plan must have passed the checker for operation.in_place. The program may deadlock although the plan, whose sends
// are buffered, does not: call find_deadlock().
Program lower(const Plan& plan, const collectives::Operation& operation, const LowerOptions& options);

// Returns a plan in which every slice that is sent is first copied to scratch, so that a rank may leave, or overwrite
// its buffers, before others have read them. Equal slices are copied once.
Plan stage_sends(const Plan& plan);

// Returns a plan that copies the whole input to scratch and never reads it again: for in-place runs of plans that write
// their output before they have read all of their input.
Plan stage_input(const Plan& plan);

}  // namespace lockstep::plan
