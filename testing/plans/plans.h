// For tests: plans written by hand, plans with one planted mistake, and a slow engine that runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/plan.h"

namespace lockstep::plan {

// Plans written by hand for the tests of this folder: short, independent of the catalogue, each for a stated reason.

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

// A slow, obvious engine, for tests only: runs a plan on numbers, one step of one lane at a time, in a random order. It
// shares no code with the checker: channels are queues, memory is vectors, and waiting is trying again.

// Returns an empty text if the run ended with every output right and the input unchanged, else the error. Blocks have
// unequal chunks, so that a chunk in a place of another size is detected. The seed decides the order: any runnable lane
// each time, or, for one seed in four, always the runnable lane of the highest random priority (some lanes far ahead of
// others).
std::string interpret_slow(const Plan& plan, const CheckOptions& options, std::uint64_t seed);

// Plans with one mistake, for tests of the checker.

struct Mutant {
  std::string what;  // "rank 1 lane 0 step 3 (send output[0] -> 2): dropped"
  Plan plan;
};

// Calls `visit` with every plan that differs from `plan` by one edit of one step: another chunk, another peer, reduce
// for copy or copy for reduce, another count, the step dropped, swapped with the next one, or without its `after`.
void for_each_mutant(const Plan& plan, const std::function<void(const Mutant&)>& visit);

// Verdicts of the checker and of the slow interpreter on all mutants of a plan.
struct MutantTally {
  int mutants = 0;
  int rejected = 0;                 // by the checker
  int harmful = 0;                  // wrong in at least one of the random orders tried
  std::vector<std::string> missed;  // harmful, but accepted: must be empty
};

// Tries `orders` random orders of each mutant.
MutantTally tally_mutants(const Plan& plan, const CheckOptions& options, int orders, std::uint64_t seed);

}  // namespace lockstep::plan
