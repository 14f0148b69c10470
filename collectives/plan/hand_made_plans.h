// Plans written by hand for the tests of this folder: short, independent of the catalogue, each for a stated reason.
#pragma once

#include "collectives/plan/plan.h"

namespace lockstep::plan {

// Ring all-reduce with `lanes` concurrent rings, each over its own chunks: num_ranks * lanes chunks. Needs capacity 1.
Plan ring_plan(int num_ranks, int lanes = 1);

// Pipelined chain broadcast from `root` in `chunks` messages.
Plan chain_plan(int num_ranks, int root, int chunks);

// Recursive doubling all-reduce of whole blocks; num_ranks is a power of two. Sums alternate between output and
// scratch, so that no rank overwrites data that a peer may still read.
Plan exchange_plan(int num_ranks);

// Recursive halving and doubling all-reduce, one message per chunk: both sides of a pair send half of their chunks
// before they receive. Needs capacity num_ranks / 2; num_ranks is a power of two.
Plan halving_doubling_plan(int num_ranks);

// All-reduce in which lane 0 receives every peer's block into one scratch slot, again and again, and lane 1 adds it:
// `after` edges in both directions keep the slot from being read or overwritten too early.
Plan two_lane_plan(int num_ranks);

// Every rank sends each peer its block; rank r begins with r+1.
Plan direct_all_to_all_plan(collectives::Kind kind, int num_ranks, int chunks_per_block = 1);

}  // namespace lockstep::plan
