// The attention of context-parallel ranks as operations of the step model, from the list of their form
// (workload/context_list.h), with each exchange overlapping the blocks of a turn where the list allows it.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/operations.h"

namespace lockstep::workload {

// From the product that makes queries, keys and values to the projection, for cp above 1 with attention that keeps no
// scores in memory, or colossal. Compute is that of the rank with most work in each turn; exchanges have the largest
// message of any rank.
//
//   forward    split; operands of turn 0; for each turn: operands of the next turn overlapping core, merge of results
// of
//              the previous turn, results overlapping what follows
//   backward   the same with turns in reverse
std::vector<Operation> context_operations(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
