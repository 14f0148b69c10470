// A checker of any list of context-parallel attention (workload/context_list.h): it executes the list on all ranks
// together, with chunks as symbols.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "workload/context_list.h"

namespace lockstep::workload {

// Returns an empty list if: each rank sends only what it has; the messages of a turn match; each block has its operands
// on its rank; every pair of a query and a key that the mask shows is computed exactly once and no other is (except for
// `colossal`, which computes all scores); results arrive at the rank of their queries, and gradients of queries, keys
// and values at their owners, each pair's once. Otherwise at most `limit` problems: "forward, turn 2, rank 1: ...".
std::vector<std::string> check(const ContextList& list, std::size_t limit = 10);

// Sum over turns of the slowest rank's pairs, if all ranks exchange at the end of a turn.
double chunk_pairs_in_step(const ContextList& list);

}  // namespace lockstep::workload
