#include "workload/operations.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "workload/operation_parts.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GroupKind;

class GridOperations {
 public:
  GridOperations(const Model& model, const Layout& layout)
      : model_(model), layout_(layout), alone_(model), one_(layout), side_(layout.grid.side) {
    alone_.hidden /= side_;
    alone_.heads /= side_;
    alone_.kv_heads /= side_;
    alone_.ffn_hidden /= side_;
    alone_.vocabulary = words_per_rank(model_, layout_);
    one_.grid = {};
    one_.tp = 1;
    one_.microbatch_size /= divisors_of(layout.grid).rows;
  }

  std::vector<Operation> layer() {
    for (Operation& op : layer_operations(alone_, one_)) {
      const bool is_up = op.kind == OperationKind::up;
      put(std::move(op));
      if (is_up && !has_activation(model_, one_)) put_gelu();
    }
    return std::move(ops_);
  }

  // Looks up the words of a panel for all rows of the ranks that have the panels with the other words. In three
  // dimensions the panel is gathered first; the depth of two and a half has terms of its gradient.
  std::vector<Operation> embedding() {
    if (layout_.grid.depth > 1) put_table();
    Layout rows = one_;
    rows.microbatch_size *= side_;
    for (Operation& op : embedding_operations(alone_, rows)) {
      const bool looks_up = op.kind == OperationKind::embed;
      ops_.push_back(std::move(op));
      if (!looks_up) continue;
      Operation sum{.kind = OperationKind::leave_embedding};
      const double bytes = static_cast<double>(side_) * input_bytes(alone_, one_);
      const GroupKind axis = axis_of_embedding(layout_.grid);
      sum.forward_exchange = {Comm::reduce_scatter, axis, bytes};
      sum.backward_exchange = {Comm::all_gather, axis, bytes};
      ops_.push_back(sum);
    }
    return std::move(ops_);
  }

  std::vector<Operation> head() {
    constexpr double kStatsBytes = 3 * sizeof(float);
    const auto rows = static_cast<std::int64_t>(tokens_of(alone_, one_));
    const std::int64_t words = alone_.vocabulary;
    for (Operation& op : head_operations(alone_, one_)) {
      const bool is_logits = op.kind == OperationKind::logits;
      if (op.kind == OperationKind::loss && !model_.dropout) {
        op.forward = {kernel_call(
            kernels::CrossEntropyFinish{
                .rows = rows, .columns = words, .valid_columns = words, .first_id = 0, .shards = side_},
            layout_.compute)};
      }
      put(std::move(op));
      if (!is_logits) continue;
      Operation stats{.kind = OperationKind::exchange_stats};
      if (!model_.dropout) {
        stats.forward = {kernel_call(
            kernels::CrossEntropyStats{.rows = rows, .columns = words, .valid_columns = words, .first_id = 0},
            layout_.compute)};
      }
      const GroupKind axis = axis_of_columns(grid_linear(model_, layout_, OperationKind::logits), GridMatrix::y);
      stats.forward_exchange = {Comm::all_gather, axis,
                                static_cast<double>(side_) * tokens_of(alone_, one_) * kStatsBytes};
      ops_.push_back(stats);
    }
    return std::move(ops_);
  }

 private:
  double element() const { return static_cast<double>(core::size_of(layout_.compute)); }
  double gradient_element() const { return sizeof(float); }  // before it is rounded to Layout::gradient
  // An operation of one rank; the product of a matrix becomes that of its blocks.
  void put(Operation op) {
    if (!op.weight_gradient.empty()) return put_product(op);
    const bool is_norm = op.kind == OperationKind::attention_norm || op.kind == OperationKind::mlp_norm ||
                         op.kind == OperationKind::head_norm;
    if (!is_norm) return ops_.push_back(std::move(op));
    Operation sums{.kind = OperationKind::exchange_norm};
    sums.turn = op.kind == OperationKind::mlp_norm ? 1 : 0;
    const auto numbers = static_cast<double>(kernels::sums_per_row(norm_of(model_)));
    const GroupKind axis = axis_of_columns(grid_linear(model_, layout_, OperationKind::qkv), GridMatrix::x);
    sums.forward_exchange = {Comm::all_reduce, axis, numbers * sizeof(float) * tokens_of(alone_, one_)};
    sums.backward_exchange = sums.forward_exchange;
    if (model_.dropout) {  // other frameworks' kernels
      ops_.push_back(std::move(op));
      return ops_.push_back(sums);
    }
    using kernels::NormPart;
    ops_.push_back(part_of_norm(op, NormPart::sums, NormPart::rest));
    ops_.push_back(sums);
    op.kept_bytes = 0;
    op.turn = 1;
    ops_.push_back(part_of_norm(op, NormPart::rest, NormPart::sums));
  }

  // One of the two operations of a norm, before and after the exchange of its sums.
  Operation part_of_norm(Operation op, kernels::NormPart forward, kernels::NormPart backward) const {
    auto& of_forward = std::get<kernels::NormForward>(op.forward.front().arguments);
    auto& of_backward = std::get<kernels::NormBackward>(op.input_gradient.front().arguments);
    of_forward.part = forward;
    of_backward.part = backward;
    of_forward.ranks = of_backward.ranks = side_;
    of_forward = kernels::shaped(of_forward, layout_.compute);
    of_backward = kernels::shaped(of_backward, layout_.compute);
    return op;
  }

  // The exchanges of an embedding's table, and the sum with the gradient so far.
  void put_table() {
    const GridLinear table = grid_linear(model_, layout_, OperationKind::logits);
    const auto elems = static_cast<double>(panel_of(table, GridMatrix::w).elems());
    Operation exchange{.kind = OperationKind::embed, .of_weight_gradient = true, .turn = 1};
    exchange.backward_exchange = {Comm::all_reduce, GroupKind::tensor_depth, gradient_element() * elems};
    if (!table.transposed) {
      exchange.forward_exchange = {Comm::all_gather, GroupKind::tensor_column, element() * elems};
      exchange.backward_exchange = {Comm::reduce_scatter, GroupKind::tensor_column, gradient_element() * elems};
    }
    Operation sum{.kind = OperationKind::embed, .turn = 2};
    sum.weight_gradient = {
        kernel_call(kernels::ResidualAdd{.count = block_of(table, GridMatrix::w, 0).elems()}, core::DType::f32)};
    ops_.push_back(sum);
    ops_.push_back(exchange);
  }

  // SUMMA sums several products; the activation can only come after all of them.
  void put_gelu() {
    const std::int64_t count = layout_.microbatch_size * model_.sequence * model_.ffn_hidden / layout_.tp;
    Operation op{.kind = OperationKind::activation};
    op.forward = {kernel_call(kernels::GeluForward{.count = count}, layout_.compute)};
    op.input_gradient = {kernel_call(kernels::GeluBackward{.count = count}, layout_.compute)};
    ops_.push_back(op);
  }

  // `one`: the product as one rank's, whose inputs are kept.
  void put_product(const Operation& one) {
    const GridLinear whole = grid_linear(model_, layout_, one.kind);
    const std::size_t first = ops_.size();
    for (const bool backward : {false, true}) {
      const std::vector<GridStep> steps = backward ? backward_steps(whole) : forward_steps(whole);
      const auto begin = static_cast<std::ptrdiff_t>(ops_.size());
      for (std::size_t i = 0; i < steps.size(); ++i) ops_.push_back(operation(one.kind, whole, steps, i));
      if (backward) std::reverse(ops_.begin() + begin, ops_.end());
    }
    ops_[first].kept_bytes = one.kept_bytes;
    ops_[first].later_bytes = one.later_bytes;
    ops_[first].keeps_output = one.keeps_output;
  }

  Operation operation(OperationKind kind, const GridLinear& whole, const std::vector<GridStep>& steps,
                      std::size_t i) const {
    const GridStep& step = steps[i];
    Operation op{.kind = kind};
    op.turn = static_cast<std::uint16_t>(i);
    if (step.is_exchange()) {
      const bool forward = step.product == GridProduct::forward;
      op.of_weight_gradient = step.product == GridProduct::weight_gradient;
      (forward ? op.forward_exchange : op.backward_exchange) = {step.comm, step.axis, payload(whole, step)};
      const GridStep* const product = layout_.overlap_tp ? product_beside(steps, i) : nullptr;
      if (product != nullptr) {
        (forward ? op.beside : product->product == step.product ? op.beside_backward : op.beside_weight) = true;
      }
      return op;
    }
    const kernels::GemmShape shape{panel_of(whole, GridMatrix::x).rows, panel_of(whole, GridMatrix::w).columns,
                                   panel_of(whole, GridMatrix::w).rows};
    const core::DType dtype = layout_.compute;
    if (step.product == GridProduct::forward) {
      op.forward = {kernel_call(kernels::GemmForward{.shape = shape}, dtype)};
    } else if (step.product == GridProduct::input_gradient) {
      op.input_gradient = {kernel_call(kernels::GemmInputGradient{.shape = shape}, dtype)};
    } else {
      op.weight_gradient = {kernel_call(kernels::GemmWeightGradient{.shape = shape}, dtype)};
    }
    return op;
  }

  // Payload of a panel, or of the block for an all-reduce.
  double payload(const GridLinear& whole, const GridStep& step) const {
    const double size = !step.is_fetch() && step.matrix == GridMatrix::w ? gradient_element() : element();
    const GridBlock block =
        step.comm == Comm::all_reduce ? block_of(whole, step.matrix, 0) : panel_of(whole, step.matrix);
    return size * static_cast<double>(block.elems());
  }

  // The next product of the list that does not depend on this exchange, if there is one: for data fetched for a later
  // product, and for a result while further ones are computed.
  static const GridStep* product_beside(const std::vector<GridStep>& steps, std::size_t i) {
    const auto next = std::find_if(steps.begin() + static_cast<std::ptrdiff_t>(i), steps.end(),
                                   [](const GridStep& step) { return !step.is_exchange(); });
    if (next == steps.end()) return nullptr;
    const GridStep& step = steps[i];
    const bool is_for_it = step.is_fetch() && step.number == next->number && step.product == next->product;
    return is_for_it ? nullptr : &*next;
  }

  const Model& model_;
  const Layout& layout_;
  Model alone_;  // the part of the model that a rank has between products
  Layout one_;   // a layout of one such rank
  std::int64_t side_;
  std::vector<Operation> ops_;
};

std::string must_be_multiple(const char* what, std::int64_t value, std::int64_t of) {
  if (value % of == 0) return "";
  return std::string(", and ") + what + " is " + std::to_string(value) + "; allowed: multiples of " +
         std::to_string(of);
}

}  // namespace

GridLinear grid_linear(const Model& model, const Layout& layout, OperationKind product) {
  GridLinear linear{layout.grid, layout.microbatch_size * model.sequence, model.hidden, model.hidden};
  switch (product) {
    case OperationKind::qkv:
      linear.outputs = (model.heads + 2 * model.kv_heads) * model.head_size;
      break;
    case OperationKind::up:
      linear.outputs = model.ffn_hidden * (model.gated ? 2 : 1);
      break;
    case OperationKind::projection:
      linear.inputs = model.heads * model.head_size;
      linear.swapped = true;
      break;
    case OperationKind::down:
      linear.inputs = model.ffn_hidden;
      linear.swapped = true;
      break;
    default:
      linear.outputs = words_per_rank(model, layout) * layout.grid.side;
      linear.transposed = layout.grid.form != GridForm::three;
  }
  return linear;
}

std::vector<Operation> grid_layer_operations(const Model& model, const Layout& layout) {
  return GridOperations(model, layout).layer();
}
std::vector<Operation> grid_embedding_operations(const Model& model, const Layout& layout) {
  return GridOperations(model, layout).embedding();
}
std::vector<Operation> grid_head_operations(const Model& model, const Layout& layout) {
  return GridOperations(model, layout).head();
}

std::string grid_conflict(const Model& model, const Layout& layout) {
  const std::string grid = "tp_grid is " + text_of(layout.grid);
  if (layout.tp != layout.grid.ranks()) {
    return grid + ", and tp is " + std::to_string(layout.tp) + "; allowed: tp=" + std::to_string(layout.grid.ranks()) +
           ", or no tp";
  }
  const auto refused = [&](bool has, const char* what, const char* allowed) {
    return has ? std::string(", with ") + what + "; allowed: " + allowed : std::string();
  };
  const std::int64_t side = layout.grid.side;
  const GridDivisors divisors = divisors_of(layout.grid);
  for (const std::string& reason :
       {refused(layout.sequence_parallel, "sp=yes", "sp=no, as a grid shares rows out by itself"),
        refused(model.experts > 0, "experts", "a model without experts"),
        refused(layout.cp > 1, "context-parallel ranks", "cp=1"),
        refused(layout.fp8 != Fp8::none, "8-bit floats", "fp8=none"),
        must_be_multiple("microbatch", layout.microbatch_size, divisors.rows),
        must_be_multiple("heads", model.heads, side), must_be_multiple("kv_heads", model.kv_heads, side),
        must_be_multiple("hidden", model.hidden, divisors.outputs),
        must_be_multiple("ffn_hidden", model.ffn_hidden, divisors.outputs),
        must_be_multiple("columns of queries, keys and values", (model.heads + 2 * model.kv_heads) * model.head_size,
                         divisors.outputs)}) {
    if (!reason.empty()) return grid + reason;
  }
  return "";
}

}  // namespace lockstep::workload
