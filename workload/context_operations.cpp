#include "workload/operations.h"

#include <algorithm>
#include <utility>

#include "workload/context_layer.h"
#include "workload/context_list.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GroupKind;

class ContextOperations {
 public:
  ContextOperations(const Model& model, const Layout& layout)
      : layer_(context_layer_of(model, layout, layout.cp - 1)),
        last_(context_sides(layer_.shape, layer_.rank)),
        first_(context_sides(layer_.shape, 0)),
        turns_(static_cast<std::int32_t>(last_.forward.size())) {}

  std::vector<Operation> all() {
    ops_.push_back(split());
    for (std::int32_t turn = -1; turn < turns_; ++turn) {
      if (turn >= 0) ops_.push_back(core(turn));
      between(turn);
    }
    return std::move(ops_);
  }

 private:
  const std::vector<ContextTurn>& turns(bool backward) const { return backward ? last_.backward : last_.forward; }
  const ContextTurn& turn_at(bool backward, std::int32_t turn) const {
    return turns(backward)[static_cast<std::size_t>(turn)];
  }
  bool has(std::int32_t turn) const { return turn >= 0 && turn < turns_; }
  double element() const { return static_cast<double>(core::size_of(layer_.dtype)); }

  // Operations between the blocks of two consecutive turns: forward in order, backward in reverse.
  void between(std::int32_t turn) {
    const bool is_end = turn + 1 == turns_;
    if (turn < 0) operands(0, false, false);
    merge(turn - 1, false);
    results(turn, false, !is_end);
    if (is_end) merge(turn, false);
    operands(turn + 2, false, true);

    const std::size_t begin = ops_.size();
    const std::int32_t next = turn + 1;  // its backward comes before this turn's
    if (is_end) operands(turn, true, false);
    merge(next + 1, true);
    results(next, true, turn >= 0);
    if (turn < 0) merge(next, true);
    operands(turn - 1, true, true);
    std::reverse(ops_.begin() + static_cast<std::ptrdiff_t>(begin), ops_.end());
  }

  // ---- exchanges

  void operands(std::int32_t turn, bool backward, bool beside) {
    if (has(turn)) exchanges(turn, backward, false, beside);
  }
  void results(std::int32_t turn, bool backward, bool beside) {
    if (has(turn)) exchanges(turn, backward, true, beside);
  }
  void exchanges(std::int32_t turn, bool backward, bool results, bool beside) {
    for (const ExchangePosition& place : places_of(turn_at(backward, turn), turn)) {
      if (place.results != results) continue;
      Operation op{.kind = OperationKind::exchange_context};
      op.turn = place.number();
      op.core = true;
      const Exchange exchange{comm_of(place, backward), GroupKind::context, payload(place, backward)};
      (backward ? op.backward_exchange : op.forward_exchange) = exchange;
      (backward ? op.beside_backward : op.beside) = beside;
      ops_.push_back(std::move(op));
    }
  }
  const ContextExchange& of_rank(bool first, const ExchangePosition& place, bool backward) const {
    const ContextSides& sides = first ? first_ : last_;
    const ContextTurn& turn = (backward ? sides.backward : sides.forward)[static_cast<std::size_t>(place.turn)];
    return (place.results ? turn.results : turn.operands)[static_cast<std::size_t>(place.index)];
  }
  Comm comm_of(const ExchangePosition& place, bool backward) const { return of_rank(false, place, backward).comm; }
  double payload(const ExchangePosition& place, bool backward) const {
    double bytes = 0;
    for (const bool first : {false, true}) {
      const ContextExchange& exchange = of_rank(first, place, backward);
      if (!exchange.sends.empty()) bytes = std::max(bytes, static_cast<double>(layer_.bytes(exchange.array)));
      if (!exchange.receives.empty()) bytes = std::max(bytes, static_cast<double>(layer_.bytes(exchange.received)));
    }
    const Comm comm = comm_of(place, backward);
    const bool whole = comm == Comm::all_gather || comm == Comm::reduce_scatter;
    return whole ? bytes * layer_.shape.ranks : bytes;
  }

  // ---- kernels

  template <class Args>
  KernelCall call(Args args, double count = 1) const {
    return kernel_call(std::move(args), layer_.dtype, count);
  }
  // A copy of these elements.
  KernelCall copy(std::int64_t columns) const {
    return call(kernels::CopyRows{.rows = layer_.rows(), .columns = columns});
  }

  Operation split() const {
    Operation op{.kind = OperationKind::split_heads};
    op.core = true;
    op.forward = {copy(layer_.query_columns() + 2 * layer_.key_columns())};
    op.input_gradient = op.forward;
    return op;
  }

  // Number of kernel calls for a block.
  double count_of(const ContextBlock& block) const {
    const std::int64_t calls = layer_.batch / batch_of_call(layer_, rows_of(layer_, block));
    return static_cast<double>(calls);
  }

  KernelCall attention(const ContextBlock& block, bool backward) const {
    const kernels::AttentionShape shape = call_shape(layer_, block);
    const double count = count_of(block);
    if (block.work == ContextWork::attention) {
      return backward ? call(kernels::AttentionBackward{.shape = shape}, count)
                      : call(kernels::AttentionForward{.shape = shape}, count);
    }
    const double pairs = static_cast<double>(shape.batch * shape.heads) * static_cast<double>(shape.pairs());
    const double rows = static_cast<double>(shape.batch) *
                        static_cast<double>(shape.queries * shape.row() + shape.keys * shape.key_row());
    // Colossal: one product, with the scores read from or written to memory.
    const double passes = backward ? 2 : 1;
    const double flops = passes * 2 * pairs * static_cast<double>(shape.head_columns);
    return {OtherKernel{KernelClass::attention, layer_.dtype, flops, passes * element() * (pairs + rows)}, count};
  }

  Operation core(std::int32_t turn) const {
    Operation op{.kind = OperationKind::core};
    op.turn = static_cast<std::uint16_t>(turn);
    op.core = true;
    op.keeps_output = true;
    moves_keys_of_all(turn, op);
    for (const ContextBlock& block : turn_at(false, turn).blocks) {
      if (block.work == ContextWork::scores) op.kind = OperationKind::scores;
      if (block.work == ContextWork::values) op.kind = OperationKind::values;
      op.forward.push_back(attention(block, false));
      if (block.work != ContextWork::attention || !block.merges_queries) continue;
      const kernels::AttentionShape shape = call_shape(layer_, block);
      op.forward.push_back(call(
          kernels::AttentionMerge{
              .batch = shape.batch, .heads = shape.heads, .queries = shape.queries, .head_columns = shape.head_columns},
          count_of(block)));
    }
    for (const ContextBlock& block : turn_at(true, turn).blocks) {
      const kernels::AttentionShape shape = call_shape(layer_, block);
      op.input_gradient.push_back(attention(block, true));
      if (block.merges_queries) add(op, shape.batch * shape.queries * shape.row(), count_of(block));
      if (!block.adds_keys) continue;
      add(op, shape.batch * shape.keys * shape.key_row(), 2 * count_of(block));  // keys and values
    }
    if (turn == 0) op.kept_bytes = kept_of_core();
    softmax(turn, op);
    return op;
  }
  void add(Operation& op, std::int64_t elems, double count) const {
    op.input_gradient.push_back(call(kernels::ResidualAdd{.count = elems}, count));
  }

  double kept_of_core() const {
    const auto outputs = static_cast<double>(layer_.bytes(ContextArray::outputs));
    const auto sums = static_cast<double>(layer_.bytes(ContextArray::sums));
    if (layer_.shape.way == ContextWay::ulysses) return 2 * outputs + sums;  // the rank's own heads, and its own tokens
    return outputs + (layer_.shape.way == ContextWay::colossal ? scores_bytes() : sums);
  }
  double scores_bytes() const {
    return element() * static_cast<double>(layer_.rows() * layer_.heads) * static_cast<double>(layer_.length);
  }

  // Reorders gathered keys into sequence order, and their gradients back; for Ulysses, tokens of each rank into
  // sequences.
  void moves_keys_of_all(std::int32_t turn, Operation& op) const {
    if (turn != 0) return;
    if (layer_.shape.way == ContextWay::allgather) {
      op.forward.push_back(copy(2 * layer_.key_columns() * layer_.shape.ranks));
      op.input_gradient = {op.forward.front(), op.forward.front()};
    }
    if (layer_.shape.way == ContextWay::ulysses) {
      op.forward = {copy(layer_.query_columns()), copy(2 * layer_.key_columns()), copy(layer_.query_columns())};
      op.input_gradient = op.forward;
    }
  }

  // Between all scores and the first values.
  void softmax(std::int32_t turn, Operation& op) const {
    if (layer_.shape.way != ContextWay::colossal || turn != layer_.shape.ranks - 1) return;
    op.forward.push_back({OtherKernel{KernelClass::pass, layer_.dtype, 0, 2 * scores_bytes()}, 1});
    op.input_gradient.push_back({OtherKernel{KernelClass::pass, layer_.dtype, 0, 3 * scores_bytes()}, 1});
  }

  // Sums of the turn's received results.
  void merge(std::int32_t turn, bool backward) {
    if (!has(turn)) return;
    Operation op{.kind = OperationKind::merge_context};
    op.turn = static_cast<std::uint16_t>(turn);
    op.core = true;
    std::vector<KernelCall>& calls = backward ? op.input_gradient : op.forward;
    for (const ContextExchange& exchange : turn_at(backward, turn).results) {
      if (exchange.comm == Comm::all_to_all) {
        if (!backward) calls.push_back(copy(layer_.query_columns()));
      } else if (exchange.comm == Comm::shift && is_summed(exchange.received)) {
        calls.push_back(call(kernels::ResidualAdd{.count = layer_.elems(exchange.received)}));
      } else if (exchange.comm == Comm::shift && exchange.received == ContextArray::outputs) {
        calls.push_back(call(kernels::AttentionMerge{.batch = layer_.batch,
                                                     .heads = layer_.heads,
                                                     .queries = layer_.tokens(),
                                                     .head_columns = layer_.head_columns}));
      }
    }
    if (!calls.empty()) ops_.push_back(std::move(op));
  }

  const ContextLayer layer_;  // layer of the last rank
  const ContextSides last_;
  const ContextSides first_;
  const std::int32_t turns_;
  std::vector<Operation> ops_;
};

}  // namespace

std::vector<Operation> context_operations(const Model& model, const Layout& layout) {
  return ContextOperations(model, layout).all();
}

}  // namespace lockstep::workload
