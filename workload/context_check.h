// Whether a list of context-parallel attention (context_list.h) is right, whoever made it: played on all ranks together
// with chunks as symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workload/context_layer.h"
#include "workload/context_list.h"

namespace lockstep::workload {

// Empty: each rank sends only what it has; messages of a turn meet; each block has its operands where it is computed;
// every pair of a query and a key that the mask shows is weighed exactly once, and no other is, but for `colossal`,
// which makes all scores; results arrive at the rank of their queries, and gradients of queries, keys and values at
// theirs, each pair's once. At most `limit` problems: "forward, turn 2, rank 1: ...".
std::vector<std::string> check(const ContextList& list, std::size_t limit = 10);

// ---- counted

// Pairs of a chunk of queries and a chunk of keys, a causal block's diagonal as a half, that a rank weighs in a turn.
double chunk_pairs(const ContextTurn& turn);
// All of a rank.
double chunk_pairs(const ContextList& list, std::int32_t rank);
// In each turn the slowest rank's, where all exchange at the end of a turn.
double chunk_pairs_in_step(const ContextList& list);

// Bytes that a rank sends in an exchange. Gathers and reductions as algorithms that send the fewest have them.
double bytes_sent(const ContextExchange& exchange, const ContextLayer& layer);
struct ContextBytes {
  double forward = 0;
  double backward = 0;
};
// Of the layer's rank in a pass.
ContextBytes bytes_sent(const ContextList& list, const ContextLayer& layer);

}  // namespace lockstep::workload
