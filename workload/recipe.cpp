#include "workload/build_step.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "schedules/slices.h"
#include "workload/operations.h"

namespace lockstep::workload {
namespace {

using schedules::Op;
using schedules::Piece;

// The pieces of one part: forward, recomputation, and backward.
struct PartRecipe {
  std::vector<Piece> forward = {};
  std::vector<Piece> again = {};               // recomputation of the whole part
  std::vector<Piece> again_for_backward = {};  // recomputation that the part's own backward needs
  std::vector<Piece> backward = {};
  std::vector<Piece> input_gradient = {};
  std::vector<Piece> weight_gradient = {};
};

class PartWriter {
 public:
  PartWriter(const Layout& layout, const KernelPrice& price, const IssueTimes& issue, std::vector<Operation> operations)
      : layout_(layout), price_(price), issue_(issue), ops_(std::move(operations)) {}

  PartRecipe recipe(bool recomputed) const {
    PartRecipe made;
    made.forward = forward(Op::forward, ops_.size());
    if (recomputed) {
      made.again = forward(Op::recompute, ops_.size());
      made.again_for_backward = forward(Op::recompute, layout_.early_stop ? needed() : ops_.size());
    }
    backward(made);
    return made;
  }

 private:
  std::vector<Piece> forward(Op op, std::size_t count) const {
    std::vector<Piece> pieces;
    const bool stops_early = count < ops_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const PieceName name{ops_[i].kind, Side::forward, ops_[i].turn};
      // Sums of earlier tiles into the layer's output are not recomputed either.
      if (stops_early && name.kind == OperationKind::down && tile_of(name) >= 0) continue;
      kernels(pieces, op, ops_[i].forward, name);
      collective(pieces, ops_[i].forward_exchange, ops_[i].beside, name);
    }
    return pieces;
  }

  // Number of operations up to the last one that makes a kept tensor: a layer's output is not needed a second time
  // (torch.utils.checkpoint's early stop).
  std::size_t needed() const {
    std::size_t last = ops_.size();
    while (last > 0 && ops_[last - 1].kept_bytes == 0) --last;
    return last > 0 && !ops_[last - 1].keeps_output ? last - 1 : last;
  }

  // Both gradients as one list, and each in a list of its own.
  void backward(PartRecipe& to) const {
    for (std::size_t i = ops_.size(); i-- > 0;) {
      const Operation& op = ops_[i];
      if (layout_.recompute == Recompute::selective && !op.core && i > 0 && ops_[i - 1].core) core_again(to);
      const bool has_weight = !op.weight_gradient.empty();
      const PieceName regather{op.kind, Side::regather, op.turn};
      collective(to.backward, op.regather, true, regather);
      collective(has_weight ? to.weight_gradient : to.input_gradient, op.regather, !has_weight, regather);

      const PieceName input{op.kind, Side::input_gradient, op.turn};
      kernels(to.backward, Op::backward, op.input_gradient, input);
      kernels(to.input_gradient, Op::input_gradient, op.input_gradient, input);
      // The gradient that enters a tensor-parallel part is sent while the product's weight gradient is computed; so are
      // the first keys that the backward of context-parallel ranks needs, and a mixture's dispatch during the shared
      // experts.
      const bool overlaps = i > 0 && leaves_early(i - 1);
      if (overlaps) collective(to.backward, ops_[i - 1].backward_exchange, true, input_of(i - 1));

      const PieceName weight{op.kind, Side::weight_gradient, op.turn};
      kernels(to.backward, Op::backward, op.weight_gradient, weight);
      kernels(to.weight_gradient, Op::weight_gradient, op.weight_gradient, weight);
      if (!leaves_early(i))
        collective(to.backward, op.backward_exchange, op.beside_backward || op.beside_weight, input);
      collective(op.of_weight_gradient ? to.weight_gradient : to.input_gradient, op.backward_exchange,
                 op.beside_backward, input);
    }
  }

  // Recomputes the core of attention: it is first needed by the weight gradient of the following product.
  void core_again(PartRecipe& to) const {
    for (const Operation& op : ops_) {
      if (!op.core) continue;
      const PieceName name{op.kind, Side::forward, op.turn};
      for (std::vector<Piece>* const list : {&to.backward, &to.input_gradient}) {
        kernels(*list, Op::recompute, op.forward, name);
        collective(*list, op.forward_exchange, op.beside, name);
      }
    }
  }

  PieceName input_of(std::size_t i) const { return {ops_[i].kind, Side::input_gradient, ops_[i].turn}; }
  bool leaves_early(std::size_t i) const {
    const Exchange& exchange = ops_[i].backward_exchange;
    if (!layout_.overlap_tp || exchange.comm == schedules::Comm::none || i + 1 == ops_.size()) return false;
    const bool inside = exchange.group == schedules::GroupKind::tensor ||
                        exchange.group == schedules::GroupKind::context ||
                        ops_[i + 1].kind == OperationKind::shared_experts;
    return inside && !ops_[i + 1].weight_gradient.empty();
  }

  void kernels(std::vector<Piece>& to, Op op, const std::vector<KernelCall>& calls, PieceName name) const {
    if (calls.empty()) return;
    Piece piece{.op = op, .what = what_of(name)};
    for (const KernelCall& call : calls) {
      if (price_) piece.amount += std::llround(call.count * static_cast<double>(price_(call)));
      piece.issue_ps += std::llround(call.count * static_cast<double>(issue_.kernel_ps));
    }
    to.push_back(piece);
  }
  void collective(std::vector<Piece>& to, const Exchange& exchange, bool overlaps, PieceName name) const {
    if (exchange.comm == schedules::Comm::none) return;
    to.push_back({.op = Op::layer_collective,
                  .amount = static_cast<std::int64_t>(exchange.bytes),
                  .comm = exchange.comm,
                  .group = exchange.group,
                  .overlaps_next = overlaps,
                  .what = what_of(name),
                  .issue_ps = issue_.collective_ps});
  }

  const Layout& layout_;
  const KernelPrice& price_;
  const IssueTimes& issue_;
  std::vector<Operation> ops_;
};

void append(std::vector<Piece>& to, const std::vector<Piece>& pieces, std::int32_t part) {
  for (const Piece& piece : pieces) {
    to.push_back(piece);
    to.back().part = part;
  }
}

// Concatenates the recipes of a stage's parts.
class StageWriter {
 public:
  explicit StageWriter(schedules::StageRecipe& into) : into_(into) {}

  void forward(const PartRecipe& part, std::int32_t index) { append(into_.forward, part.forward, index); }
  void backward(const PartRecipe& part, std::int32_t index) {
    append(into_.backward, part.backward, index);
    append(into_.input_gradient, part.input_gradient, index);
    append(into_.weight_gradient, part.weight_gradient, index);
  }
  void again(const std::vector<Piece>& pieces, std::int32_t index) {
    append(into_.backward, pieces, index);
    append(into_.input_gradient, pieces, index);
  }

 private:
  schedules::StageRecipe& into_;
};

// The forward of a group's first layer, which reduces its input to the kept part right after its last use.
std::vector<Piece> forward_that_keeps(const PartRecipe& layer, const PartRecipe& kept_input) {
  std::vector<Piece> pieces = layer.forward;
  const auto last_use = std::find_if(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.comm == schedules::Comm::none && piece_named(piece.what).kind == OperationKind::mlp_norm;
  });
  pieces.insert(last_use + 1, kept_input.forward.begin(), kept_input.forward.end());
  return pieces;
}

// Layers go backward in groups of recompute_every, each after its forward has been recomputed from its input, which is
// gathered first if it was kept in parts.
void layers_backward(StageWriter& writer, const PartRecipe& layer, const PartRecipe& kept_input, const Layout& layout,
                     std::int32_t first, std::int32_t count) {
  const std::int32_t group = layout.recompute == Recompute::full ? layout.recompute_every : count;
  for (std::int32_t end = count; end > 0;) {
    const std::int32_t begin = (end - 1) / group * group;
    writer.backward(kept_input, first + begin);
    for (std::int32_t i = begin; i + 1 < end; ++i) writer.again(layer.again, first + i);
    writer.again(layer.again_for_backward, first + end - 1);
    for (std::int32_t i = end; i-- > begin;) writer.backward(layer, first + i);
    end = begin;
  }
}

}  // namespace

schedules::StageRecipe recipe_of(const Model& whole, const Layout& layout, const StageSlice& slice,
                                 const KernelPrice& price, const IssueTimes& issue) {
  const Model model = of_tokens(whole, slice);
  const auto part = [&](std::vector<Operation> operations, bool recomputed) {
    return PartWriter(layout, price, issue, std::move(operations)).recipe(recomputed);
  };
  const PartRecipe layer =
      part(layer_operations(model, layout, slice.first_token), layout.recompute == Recompute::full);
  PartRecipe kept_input;
  PartRecipe embedding;
  PartRecipe head;
  if (layout.partition_activations) kept_input = part({kept_input_operation(model, layout)}, false);
  if (slice.embedding) embedding = part(embedding_operations(model, layout), false);
  if (slice.head) head = part(head_operations(model, layout), false);

  const std::int32_t first = slice.embedding ? 1 : 0;
  const auto layers = static_cast<std::int32_t>(slice.layers);
  schedules::StageRecipe recipe;
  StageWriter writer(recipe);
  writer.forward(embedding, 0);
  PartRecipe first_of_group = layer;
  if (layout.partition_activations) first_of_group.forward = forward_that_keeps(layer, kept_input);
  const std::int32_t group = layout.recompute == Recompute::full ? layout.recompute_every : 1;
  for (std::int32_t i = 0; i < layers; ++i) writer.forward(i % group == 0 ? first_of_group : layer, first + i);
  writer.forward(head, first + layers);
  writer.backward(head, first + layers);
  layers_backward(writer, layer, kept_input, layout, first, layers);
  writer.backward(embedding, 0);
  return recipe;
}

namespace {

double sum_of(const std::vector<schedules::Piece>& pieces) {
  double ps = 0;
  for (const schedules::Piece& piece : pieces)
    ps += piece.comm == schedules::Comm::none ? static_cast<double>(piece.amount) : 0;
  return ps;
}

// Time of the kernels of a part of the model, forward and backward.
double time_of(const Model& model, const Layout& layout, const StageSlice& slice, const KernelPrice& price) {
  const schedules::StageRecipe recipe = recipe_of(model, layout, slice, price);
  return sum_of(recipe.forward) + sum_of(recipe.backward);
}

std::vector<std::int32_t> balanced_layers(const Model& model, const Layout& layout, const KernelPrice& price) {
  const std::int32_t group = layout.recompute == Recompute::full ? layout.recompute_every : 1;
  std::vector<double> costs(static_cast<std::size_t>(model.layers) + 2,
                            time_of(model, layout, {.layers = group}, price) / group);
  costs.front() = time_of(model, layout, {.embedding = true}, price);
  costs.back() = time_of(model, layout, {.head = true}, price);
  std::vector<std::int32_t> layers = schedules::balanced_parts(costs, stages_per_pipe(layout));
  --layers.front();
  --layers.back();
  return layers;
}

// Share of attention's core in the time of a layer.
double attention_share(const Model& model, const Layout& layout, const KernelPrice& price) {
  double core = 0;
  double all = 0;
  for (const Operation& op : layer_operations(model, layout)) {
    double ps = 0;
    for (const auto* calls : {&op.forward, &op.input_gradient, &op.weight_gradient}) {
      for (const KernelCall& call : *calls) ps += call.count * static_cast<double>(price(call));
    }
    all += ps;
    if (op.core) core += ps;
  }
  return all > 0 ? core / all : 0;
}

std::vector<std::int64_t> balanced_tokens(const Model& model, const Layout& layout, const KernelPrice& price) {
  // Sequence parallelism needs whole rows for each tensor-parallel rank; short sequences of tests use shorter blocks.
  std::int64_t block = schedules::slice_block(model.sequence, layout.slices);
  if (layout.sequence_parallel && block % layout.tp != 0) block = layout.tp;
  if (model.sequence % block != 0 || model.sequence / block < layout.slices) return {};
  return schedules::balanced_slices(model.sequence, layout.slices, attention_share(model, layout, price), block);
}

}  // namespace

Layout balanced(const Model& model, const Layout& layout, const KernelPrice& price) {
  Layout chosen = layout;
  if ((!layout.balanced_layers && !layout.balanced_slices) || !why_invalid(model, layout).empty()) return chosen;
  if (layout.balanced_layers) chosen.layers_of = balanced_layers(model, layout, price);
  if (layout.balanced_slices && layout.slices > 1 && layout.slice_tokens.empty()) {
    chosen.slice_tokens = balanced_tokens(model, layout, price);
  }
  chosen.balanced_layers = false;
  chosen.balanced_slices = false;
  return chosen;
}

std::int64_t declared_price(const KernelCall& call) {
  constexpr double kFlopsAByte = 16;
  const kernels::Cost cost = cost_of(call);
  return std::llround(std::max(cost.flops / kFlopsAByte, cost.bytes));
}

namespace {

KernelCall product(core::DType dtype, double flops, double bytes) {
  return {OtherKernel{.of = KernelClass::product, .dtype = dtype, .flops = flops, .bytes = bytes}};
}

// The product of n rows of `columns` with themselves.
KernelCall curvature(core::DType dtype, double rows, double columns) {
  const double bytes = rows * columns * static_cast<double>(core::size_of(dtype)) + columns * columns * sizeof(float);
  return product(dtype, 2 * rows * columns * columns, bytes);
}

KernelCall inversion(double n) {
  return product(core::DType::f32, n * n * n, 2 * n * n * sizeof(float));
}

SecondOrderWork work_of(const Operation& operation, const kernels::GemmShape& shape, const Layout& layout) {
  const auto rows = static_cast<double>(shape.rows);
  const auto inputs = static_cast<double>(shape.inputs);
  const auto outputs = static_cast<double>(shape.outputs);
  const double elems = inputs * inputs + outputs * outputs + 2 * inputs * outputs;
  return {.product = operation.kind,
          .input_curvature = curvature(layout.compute, rows, inputs),
          .output_curvature = curvature(layout.compute, rows, outputs),
          .input_inversion = inversion(inputs),
          .output_inversion = inversion(outputs),
          .precondition = product(core::DType::f32, 2 * inputs * outputs * (inputs + outputs), elems * sizeof(float))};
}

}  // namespace

std::vector<SecondOrderWork> second_order_work(const Model& model, const Layout& layout) {
  std::vector<SecondOrderWork> all;
  for (const Operation& operation : layer_operations(model, layout)) {
    for (const KernelCall& call : operation.weight_gradient) {
      const auto* const gradient = std::get_if<kernels::GemmWeightGradient>(&call.arguments);
      if (gradient != nullptr) all.push_back(work_of(operation, gradient->shape, layout));
    }
  }
  return all;
}

}  // namespace lockstep::workload
