// The attention of context-parallel ranks as operations of the step model: what the list of their way has
// (workload/context_list.h), with each exchange where it runs beside the blocks of a turn.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/operations.h"

namespace lockstep::workload {

// From the product that makes queries, keys and values to the projection, for cp above 1 and attention whose scores
// stay on the chip, or colossal's. Of the rank that has most to compute in each turn; exchanges have the largest
// message of any rank.
//
//   forward    split; operands of turn 0; for each turn: operands of the next beside core, merge of what came back in
//              the turn before, results beside what follows
//   backward   the same with turns in reverse
std::vector<Operation> context_operations(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
