#include "workload/balance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedules/partition.h"
#include "schedules/slices.h"
#include "workload/operations.h"

namespace lockstep::workload {
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

}  // namespace lockstep::workload
