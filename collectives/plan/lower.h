// From a Plan to a Program: dataflow analysis, fusion, segments.
//
// A checked plan is run once symbolically, in any legal order, at the granularity of cells (a chunk's segment in one
// rank's memory). That tells for every read which instruction wrote the cell last, and for every write who may still
// read it. These are the only waits that the program gets: sends, channels and `after` edges have done their work.
//   fusion    runs of steps of a lane that build up one destination become one pass over several sources
//   push      a receive of what its sender has just made is done by the sender: one pass, several destinations
//   segments  every pass is cut into so many pieces, so that a reader can follow its writer closely
#pragma once

#include "collectives/plan/program.h"

namespace lockstep::plan {

struct LowerOptions {
  int segments = 1;  // pieces of every pass
  bool fuse = true;
  // The pass that makes a piece also stores it where its receivers would have copied it to.
  bool push = false;
};

// The plan must have passed the checker for operation.in_place. The program may deadlock where the plan, whose sends
// are buffered, does not: ask find_deadlock().
Program lower(const Plan& plan, const collectives::Operation& operation, const LowerOptions& options);

// A plan in which every slice that is sent is first copied to scratch, so that a rank may leave, or overwrite its
// buffers, before others have read them. Equal slices are copied once.
Plan stage_sends(const Plan& plan);

// A plan that copies the whole input to scratch and never looks at it again: for in-place runs of plans that write
// their output before they have read all of their input.
Plan stage_input(const Plan& plan);

}  // namespace lockstep::plan
