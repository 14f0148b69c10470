// Runs plans on ranks that see each other's memory: sources of other ranks are read in place, several at once.
//
// The plan is lowered to a Program (plan/lower.h) once. A run publishes where this rank's buffers lie, opens its gates
// and interprets its lanes side by side: wait until other lanes have come far enough, one pass over memory, count.
//
// Two protocols, both made by lowering passes and decided by sizes and by the deadlock check, never by an algorithm's
// name. In place: peers read the user's buffers, and a rank leaves when they have. Staged: what is sent is first copied
// to scratch, and a rank leaves at once; scratch is used in turn by even and odd calls, so that a rank may run one call
// ahead of those who still read.
#pragma once

#include <memory>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/local_world.h"

namespace lockstep::executors {

struct DirectOptions {
  std::int64_t stage_below_bytes = 16 << 10;  // of what one rank sends at most in a chunk: stage, else in place
  std::int64_t segment_bytes = 128 << 10;     // passes are cut into pieces of about this size
  // Bytes of all ranks' messages together: data that a pass stores for several ranks bypass the caches, where they
  // would not stay.
  std::int64_t bypass_above_bytes = 3 << 20;
};

// The plan must have passed the checker (out of place; what in-place runs need is found out here).
std::unique_ptr<collectives::Collective> make_direct(const plan::Plan& plan, const collectives::Operation& operation,
                                                     transports::LocalWorld& world, const DirectOptions& options);

}  // namespace lockstep::executors
