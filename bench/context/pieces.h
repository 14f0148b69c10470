// The attention of a layer as pieces of a pass, in the order and with the dependences of the step model's recipe.
#pragma once

#include <vector>

#include "workload/context_layer.h"
#include "workload/operations.h"

namespace lockstep::context_bench {

struct Piece {
  const workload::Operation* op = nullptr;
  bool is_exchange = false;
  int after = -1;  // for an exchange the last kernel before it, for a kernel the exchange that it waits for; -1: none
};

std::vector<workload::Operation> operations_of(const workload::ContextLayer& layer);
// `operations` must outlive the pieces.
std::vector<Piece> pieces_of(const std::vector<workload::Operation>& operations, bool backward);

}  // namespace lockstep::context_bench
