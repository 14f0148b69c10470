// Checks any list of context-parallel attention (context_list.h): executes it on all ranks together with chunks as
// symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workload/context_layer.h"
#include "workload/context_list.h"

namespace lockstep::workload {

// Returns an empty list if: each rank sends only what it has; the messages of a turn match; each block has its operands
// on its rank; every pair of a query and a key that the mask shows is computed exactly once and no other is (except for
// `colossal`, which computes all scores); results arrive at the rank of their queries, and gradients of queries, keys
// and values at their owners, each pair's once. Otherwise at most `limit` problems: "forward, turn 2, rank 1: ...".
std::vector<std::string> check(const ContextList& list, std::size_t limit = 10);

// ---- counts

// Pairs of a query chunk and a key chunk that a rank computes in a turn; the diagonal of a causal block counts as a
// half.
double chunk_pairs(const ContextTurn& turn);
// Total of a rank.
double chunk_pairs(const ContextList& list, std::int32_t rank);
// Sum over turns of the slowest rank's pairs, if all ranks exchange at the end of a turn.
double chunk_pairs_in_step(const ContextList& list);

// Bytes that a rank sends in an exchange; for gathers and reductions, with algorithms of minimal traffic.
double bytes_sent(const ContextExchange& exchange, const ContextLayer& layer);
struct ContextBytes {
  double forward = 0;
  double backward = 0;
};
// Bytes that the layer's rank sends in a pass.
ContextBytes bytes_sent(const ContextList& list, const ContextLayer& layer);

}  // namespace lockstep::workload
