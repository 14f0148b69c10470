#include "simulator/model/recipes.h"

#include <algorithm>

#include "simulator/model/kernel_price.h"
#include "simulator/model/layer_ops.h"

namespace lockstep::simulator {
namespace {

using schedules::Op;
using schedules::Piece;

// A list of pieces as it grows. Kernels in a row become one piece.
class Pieces {
 public:
  void kernel(Op op, std::int64_t ps) {
    if (ps == 0) return;
    if (mergeable_ && made_.back().op == op) {
      made_.back().amount += ps;
      return;
    }
    Piece piece;
    piece.op = op;
    piece.amount = ps;
    // What follows a kernel that a collective runs beside waits for that collective: it stays a piece of its own.
    mergeable_ = made_.empty() || !made_.back().beside_next;
    made_.push_back(piece);
  }
  void collective(const Exchange& exchange, bool beside) {
    if (exchange.comm == schedules::Comm::none) return;
    Piece piece;
    piece.op = Op::layer_collective;
    piece.comm = exchange.comm;
    piece.group = exchange.group;
    piece.amount = static_cast<std::int64_t>(exchange.bytes);
    piece.beside_next = beside;
    mergeable_ = false;
    made_.push_back(piece);
  }
  // Ends what merges: the next kernel belongs to another part.
  std::vector<Piece> take() {
    mergeable_ = false;
    return std::move(made_);
  }

 private:
  std::vector<Piece> made_;
  bool mergeable_ = false;
};

// The pieces of one part: what it does forward, again, and backward.
struct PartRecipe {
  std::vector<Piece> forward;
  std::vector<Piece> again;
  std::vector<Piece> backward;
  std::vector<Piece> input_gradient;
  std::vector<Piece> weight_gradient;
};

class PartPricer {
 public:
  PartPricer(const DeviceSpec& device, const Layout& layout, std::vector<LayerOp> ops)
      : device_(device), layout_(layout), ops_(std::move(ops)) {}

  std::vector<Piece> forward(Op op) const {
    Pieces pieces;
    for (const LayerOp& each : ops_) {
      pieces.kernel(op, price(each.forward));
      pieces.collective(each.forward_exchange, each.beside);
    }
    return pieces.take();
  }

  // Both gradients as one list, and each in a list of its own.
  void backward(PartRecipe& recipe) const {
    Pieces both;
    Pieces input;
    Pieces weight;
    bool core_again = layout_.recompute == Recompute::selective;
    for (std::size_t i = ops_.size(); i-- > 0;) {
      const LayerOp& op = ops_[i];
      if (op.core && core_again) {
        core_again = false;
        both.kernel(Op::recompute, core_ps());
        input.kernel(Op::recompute, core_ps());
      }
      const std::int64_t weight_ps = price(op.weight_gradient);
      both.collective(op.regather, true);
      if (weight_ps > 0) {
        weight.collective(op.regather, false);
      } else {
        input.collective(op.regather, true);
      }
      both.kernel(Op::backward, price(op.input_gradient));
      input.kernel(Op::input_gradient, price(op.input_gradient));
      weight.kernel(Op::weight_gradient, weight_ps);
      if (i > 0 && leaves_beside(i - 1)) both.collective(ops_[i - 1].backward_exchange, true);
      both.kernel(Op::backward, weight_ps);
      if (!leaves_beside(i)) both.collective(op.backward_exchange, false);
      input.collective(op.backward_exchange, false);
    }
    recipe.backward = both.take();
    recipe.input_gradient = input.take();
    recipe.weight_gradient = weight.take();
  }

 private:
  std::int64_t price(const std::vector<Kernel>& kernels) const {
    std::int64_t ps = 0;
    for (const Kernel& kernel : kernels) ps += kernel_ps(device_, kernel);
    return ps;
  }
  // The gradient that enter() reduces leaves while the weight's gradient of the product behind it is made.
  bool leaves_beside(std::size_t i) const {
    const Exchange& exchange = ops_[i].backward_exchange;
    return layout_.overlap_tp && exchange.comm != schedules::Comm::none &&
           exchange.group == schedules::GroupKind::tensor && i + 1 < ops_.size() &&
           !ops_[i + 1].weight_gradient.empty();
  }
  std::int64_t core_ps() const {
    std::int64_t ps = 0;
    for (const LayerOp& op : ops_) ps += op.core ? price(op.forward) : 0;
    return ps;
  }

  const DeviceSpec& device_;
  const Layout& layout_;
  std::vector<LayerOp> ops_;
};

PartRecipe recipe_of(const DeviceSpec& device, const Layout& layout, std::vector<LayerOp> ops, bool recomputed) {
  const PartPricer pricer(device, layout, std::move(ops));
  PartRecipe recipe;
  recipe.forward = pricer.forward(Op::forward);
  if (recomputed) recipe.again = pricer.forward(Op::recompute);
  pricer.backward(recipe);
  return recipe;
}

void append(std::vector<Piece>& to, const std::vector<Piece>& pieces, std::int32_t part) {
  for (const Piece& piece : pieces) {
    to.push_back(piece);
    to.back().part = part;
  }
}

// Puts the recipes of a stage's parts one after the other.
class StageWriter {
 public:
  explicit StageWriter(schedules::StageRecipe& into) : into_(into) {}

  void forward(const PartRecipe& part, std::int32_t index) { append(into_.forward, part.forward, index); }
  void backward(const PartRecipe& part, std::int32_t index) {
    append(into_.backward, part.backward, index);
    append(into_.input_gradient, part.input_gradient, index);
    append(into_.weight_gradient, part.weight_gradient, index);
  }
  void again(const PartRecipe& part, std::int32_t index) {
    append(into_.backward, part.again, index);
    append(into_.input_gradient, part.again, index);
  }

 private:
  schedules::StageRecipe& into_;
};

// Layers go backward in groups of recompute_every, each after its forward has been done again.
void layers_backward(StageWriter& writer, const PartRecipe& layer, const Layout& layout, std::int32_t first,
                     std::int32_t count) {
  const std::int32_t group = layout.recompute == Recompute::full ? layout.recompute_every : count;
  for (std::int32_t end = count; end > 0;) {
    const std::int32_t begin = (end - 1) / group * group;
    for (std::int32_t i = begin; i < end; ++i) writer.again(layer, first + i);
    for (std::int32_t i = end; i-- > begin;) writer.backward(layer, first + i);
    end = begin;
  }
}

schedules::StageRecipe stage_recipe(const Model& model, const Layout& layout, const DeviceSpec& device,
                                    const StageSlice& slice) {
  const bool again = layout.recompute == Recompute::full;
  const PartRecipe layer = recipe_of(device, layout, layer_ops(model, layout), again);
  PartRecipe embedding;
  PartRecipe head;
  if (slice.embedding) embedding = recipe_of(device, layout, embedding_ops(model, layout), false);
  if (slice.head) head = recipe_of(device, layout, head_ops(model, layout), false);

  const std::int32_t first = slice.embedding ? 1 : 0;
  const auto layers = static_cast<std::int32_t>(slice.layers);
  schedules::StageRecipe recipe;
  StageWriter writer(recipe);
  writer.forward(embedding, 0);
  for (std::int32_t i = 0; i < layers; ++i) writer.forward(layer, first + i);
  writer.forward(head, first + layers);
  writer.backward(head, first + layers);
  layers_backward(writer, layer, layout, first, layers);
  writer.backward(embedding, 0);
  return recipe;
}

std::int64_t total_of(const std::vector<Piece>& pieces, const CollectivePrice& price) {
  std::int64_t total = 0;
  std::int64_t beside = 0;  // what is left of collectives that run beside the next kernel
  for (const Piece& piece : pieces) {
    if (piece.op != Op::layer_collective) {
      total += std::max(piece.amount, beside);
      beside = 0;
      continue;
    }
    const std::int64_t ps = price(piece.comm, piece.group, piece.amount);
    (piece.beside_next ? beside : total) += ps;
  }
  return total + beside;
}

}  // namespace

StageWork work_of(const Model& model, const Layout& layout, const DeviceSpec& device, const StageSlice& slice) {
  StageWork work;
  work.recipe = stage_recipe(model, layout, device, slice);
  work.tensors = tensors_of(model, layout, slice);
  work.parts.resize(static_cast<std::size_t>(num_parts(slice)));
  double updated = 0;
  for (const TensorParameters& tensor : work.tensors) {
    PartParameters& part = work.parts[static_cast<std::size_t>(tensor.part)];
    (tensor.expert ? part.expert : part.dense) += tensor.elements;
    updated += static_cast<double>(tensor.elements) / (layout.zero > 0 ? shard_count(layout, tensor.expert) : 1);
  }
  work.optimizer_ps = optimizer_ps(device, static_cast<std::int64_t>(updated), layout.grad_bytes);
  const bool in_parts = layout.sequence_parallel || !layout.scatter_gather;  // as they lie, sharded or not
  const double output = input_bytes(model, layout);
  work.message_bytes = static_cast<std::int64_t>(in_parts ? output : output / layout.tp);
  return work;
}

schedules::StageCosts totals_of(const StageWork& work, const CollectivePrice& price) {
  schedules::StageCosts costs;
  costs.forward_ps = total_of(work.recipe.forward, price);
  costs.input_gradient_ps = total_of(work.recipe.input_gradient, price);
  costs.weight_gradient_ps = std::max<std::int64_t>(0, total_of(work.recipe.backward, price) - costs.input_gradient_ps);
  costs.message_bytes = work.message_bytes;
  return costs;
}

std::int64_t optimizer_ps(const DeviceSpec& device, std::int64_t parameters, std::int32_t grad_bytes) {
  const auto elements = static_cast<double>(parameters);
  const double norm = grad_bytes * elements;
  // Reads the gradient, reads and writes master copy and two moments, writes the 16-bit weight; clears the gradient.
  const double update = (2.0 * grad_bytes + 2 * 12 + 2) * elements;
  return kernel_ps(device, {Kernel::Kind::pass, 0, norm, 1}) + kernel_ps(device, {Kernel::Kind::pass, 0, update, 1});
}

}  // namespace lockstep::simulator
