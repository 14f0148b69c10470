// Runs plans on ranks that share memory: sources of other ranks are read in place, several at once.
//
// The plan is lowered to a Program (plan/lower.h) once. A run publishes the addresses of this rank's buffers and
// interleaves its lanes: wait until other lanes have done enough instructions, one pass over memory, count.
//
// Two protocols, both made by lowering passes and chosen by sizes and by the deadlock check, never by an algorithm's
// name. In place: peers read the user's buffers, and a rank leaves when they have. Staged: data to send is first copied
// to scratch, and a rank leaves at once; even and odd calls alternate between two scratch areas, so that a rank may run
// one call ahead of ranks that still read.
#pragma once

#include <memory>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/program.h"
#include "collectives/transports/local_world.h"

namespace lockstep::executors {

struct DirectOptions {
  // most bytes that one rank sends in a chunk: below this stage, else in place
  std::int64_t stage_below_bytes = 16 << 10;
  std::int64_t segment_bytes = 128 << 10;  // passes are cut into pieces of about this size
  // Bytes of all ranks' messages together, above which data that a pass stores for several ranks bypasses the caches,
  // as it would not stay in them.
  std::int64_t bypass_above_bytes = 3 << 20;
};

// The plan must have passed the checker (out of place; adaptations for in-place runs are made here).
std::unique_ptr<collectives::Collective> make_direct(const plan::Plan& plan, const collectives::Operation& operation,
                                                     transports::LocalWorld& world, const DirectOptions& options);

// Chooses the lowering for the direct executor, by the results of the checker and of the deadlock search on the plan.

// Throws Error(internal) if every lowering of the plan deadlocks, which must not happen for a checked plan.
plan::Program lower_for_direct(const plan::Plan& plan, const collectives::Operation& operation,
                               const DirectOptions& options);

}  // namespace lockstep::executors
