#include "bench/context/pieces.h"

#include <utility>

#include "workload/context_operations.h"

namespace lockstep::context_bench {

std::vector<workload::Operation> operations_of(const workload::ContextLayer& layer) {
  workload::Model model;
  model.heads = layer.heads;
  model.kv_heads = layer.kv_heads;
  model.head_size = layer.head_columns;
  model.hidden = layer.query_columns();
  model.sequence = layer.length;
  workload::Layout layout;
  layout.cp = layer.shape.ranks;
  layout.cp_way = layer.shape.way;
  layout.compute = layer.dtype;
  layout.microbatch_size = layer.batch;
  return workload::context_operations(model, layout);
}

std::vector<Piece> pieces_of(const std::vector<workload::Operation>& operations, bool backward) {
  std::vector<Piece> pieces;
  int last_kernel = -1;
  int waits_for = -1;   // exchange that the next kernel waits for
  int after_next = -1;  // exchange that the kernel after it waits for
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const workload::Operation& op = operations[backward ? operations.size() - 1 - i : i];
    const int number = static_cast<int>(pieces.size());
    if (op.kind == workload::OperationKind::exchange_context) {
      if ((backward ? op.backward_exchange : op.forward_exchange).comm == schedules::Comm::none) continue;
      pieces.push_back({&op, true, last_kernel});
      const bool beside = backward ? op.beside_backward : op.beside;
      if (!beside) waits_for = number;
      after_next = beside ? number : -1;
      continue;
    }
    if ((backward ? op.input_gradient : op.forward).empty() && op.kind == workload::OperationKind::merge_context)
      continue;
    pieces.push_back({&op, false, waits_for});
    last_kernel = number;
    waits_for = std::exchange(after_next, -1);
  }
  return pieces;
}

}  // namespace lockstep::context_bench
