#include "parallel/layers/mixture.h"

#include <numeric>

#include "kernels/gemm/gemm.h"
#include "kernels/moe/permute.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::parallel {
namespace {

using kernels::Epilogue;

// Waits for the kernels that are queued so far.
std::vector<std::int32_t> on_host(const Workspace& workspace, const Tensor& numbers) {
  finish(workspace.where);
  std::vector<std::int32_t> host(static_cast<std::size_t>(numbers.elems()));
  workspace.memory.device().copy_to_host(host.data(), numbers.data(), static_cast<std::size_t>(numbers.bytes()));
  return host;
}

// The layers of the groups: this rank's experts, once per sending rank.
template <class View, class Of, class Pick>
std::vector<View> for_groups(std::span<const Of> experts, int ranks, const Pick& pick) {
  std::vector<View> views;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Of& expert : experts) views.push_back(pick(expert));
  }
  return views;
}

std::vector<kernels::In> weights_of(std::span<const LinearWeights> experts, int ranks) {
  return for_groups<kernels::In>(experts, ranks, [](const LinearWeights& weights) { return weights.weight; });
}
std::vector<kernels::In> biases_of(std::span<const LinearWeights> experts, int ranks) {
  return for_groups<kernels::In>(experts, ranks, [](const LinearWeights& weights) { return weights.bias; });
}

std::int64_t sum_of(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

std::int64_t MixtureLayer::rows_sent() const {
  return capacity == 0 ? router.copies() : router.experts * capacity;
}

std::vector<std::int64_t> MixtureLayer::groups(const MixtureSaved& saved) const {
  std::vector<std::int64_t> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto first = saved.all_rows.begin() + rank * router.experts + index * experts_here();
    rows.insert(rows.end(), first, first + experts_here());
  }
  return rows;
}

std::int64_t MixtureLayer::rows_here(const MixtureSaved& saved) const {
  return sum_of(groups(saved));
}

std::int64_t MixtureLayer::rows_to(const MixtureSaved& saved, int from, int to) const {
  const std::span<const std::int64_t> all(saved.all_rows);
  return sum_of(all.subspan(static_cast<std::size_t>(from * router.experts + to * experts_here()),
                            static_cast<std::size_t>(experts_here())));
}

void MixtureLayer::route(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x,
                         MixtureSaved& saved) const {
  Memory& memory = workspace.memory;
  const auto ints = [&](std::int64_t count) { return memory.make(MemoryKind::buffers, core::DType::i32, count); };
  saved.logits = memory.make(MemoryKind::activations, x.dtype, router.tokens * router.experts);
  saved.choices = ints(router.copies());
  saved.gates = memory.make(MemoryKind::buffers, core::DType::f32, router.copies());
  saved.counts = ints(router.experts);
  saved.slots = ints(router.copies());
  saved.copies = ints(rows_sent());
  Linear{{router.tokens, hidden, router.experts}}.forward(workspace, {weight}, x, saved.logits.out());
  kernels::run(kernels::RouterForward{.shape = router,
                                      .with_bias = bias.given(),
                                      .logits = saved.logits.in(),
                                      .bias = bias,
                                      .choices = saved.choices.out(),
                                      .gates = saved.gates.out()},
               workspace.where);
  kernels::run(kernels::AssignSlots{.tokens = router.tokens,
                                    .experts = router.experts,
                                    .top_k = router.top_k,
                                    .capacity = capacity,
                                    .choices = saved.choices.in(),
                                    .counts = saved.counts.out(),
                                    .slots = saved.slots.out(),
                                    .copies = saved.copies.out()},
               workspace.where);
  if (capacity > 0) {
    saved.all_rows.assign(static_cast<std::size_t>(ranks * router.experts), capacity);
  } else if (ranks == 1) {
    const std::vector<std::int32_t> counts = on_host(workspace, saved.counts);
    saved.all_rows.assign(counts.begin(), counts.end());
  }
}

void MixtureLayer::permute(const Workspace& workspace, kernels::In x, MixtureSaved& saved) const {
  saved.sent = make_rows(workspace, x.dtype, rows_sent(), hidden);
  kernels::run(kernels::Permute{.tokens = router.tokens,
                                .top_k = router.top_k,
                                .rows = rows_sent(),
                                .columns = hidden,
                                .x = x,
                                .copies = saved.copies.in(),
                                .y = saved.sent.out()},
               workspace.where);
  if (ranks == 1) saved.here = std::move(saved.sent);
}

void MixtureLayer::up(const Workspace& workspace, std::span<const LinearWeights> weights, MixtureSaved& saved) const {
  const std::int64_t rows = rows_here(saved);
  const core::DType dtype = weights.front().weight.dtype;
  saved.mlp.pre = make_rows(workspace, dtype, rows, pre_columns());
  if (in_products()) saved.mlp.act = make_rows(workspace, dtype, rows, inner);
  if (rows == 0) return;
  kernels::GroupedGemmForward product{.shape = grouped(groups(saved), hidden, pre_columns()),
                                      .x = saved.here.in(),
                                      .w = weights_of(weights, ranks),
                                      .bias = biases_of(weights, ranks)};
  if (in_products()) {
    product.epilogue = Epilogue::bias_gelu;
    product.pre = saved.mlp.pre.out();
    product.y = saved.mlp.act.out();
  } else {
    product.epilogue = weights.front().bias.given() ? Epilogue::bias : Epilogue::none;
    product.y = saved.mlp.pre.out();
  }
  kernels::run(product, workspace.where);
}

void MixtureLayer::activate(const Workspace& workspace, MixtureSaved& saved) const {
  if (saved.mlp.pre.given()) mlp(saved).activate(workspace, saved.mlp);
}

void MixtureLayer::down(const Workspace& workspace, std::span<const LinearWeights> weights, MixtureSaved& saved) const {
  const std::int64_t rows = rows_here(saved);
  saved.out = make_rows(workspace, weights.front().weight.dtype, rows, hidden);
  if (rows > 0) {
    kernels::run(kernels::GroupedGemmForward{.shape = grouped(groups(saved), inner, hidden),
                                             .epilogue = weights.front().bias.given() ? Epilogue::bias : Epilogue::none,
                                             .x = saved.mlp.act.in(),
                                             .w = weights_of(weights, ranks),
                                             .bias = biases_of(weights, ranks),
                                             .y = saved.out.out()},
                 workspace.where);
  }
  if (ranks == 1) saved.back = std::move(saved.out);
}

void MixtureLayer::unpermute(const Workspace& workspace, const MixtureSaved& saved, kernels::Out y) const {
  kernels::run(kernels::Unpermute{.tokens = router.tokens,
                                  .top_k = router.top_k,
                                  .rows = rows_sent(),
                                  .columns = hidden,
                                  .y = saved.back.in(),
                                  .slots = saved.slots.in(),
                                  .gates = saved.gates.in(),
                                  .out = y},
               workspace.where);
}

MixtureLayer::SumGradient MixtureLayer::unpermute_gradient(const Workspace& workspace, const MixtureSaved& saved,
                                                           kernels::In dy) const {
  SumGradient gradients{make_rows(workspace, dy.dtype, rows_sent(), hidden),
                        workspace.memory.make(MemoryKind::buffers, core::DType::f32, router.copies())};
  kernels::run(kernels::UnpermuteBackward{.tokens = router.tokens,
                                          .top_k = router.top_k,
                                          .rows = rows_sent(),
                                          .columns = hidden,
                                          .d_out = dy,
                                          .y = saved.back.in(),
                                          .slots = saved.slots.in(),
                                          .copies = saved.copies.in(),
                                          .gates = saved.gates.in(),
                                          .dy = gradients.rows.out(),
                                          .d_gates = gradients.gates.out()},
               workspace.where);
  return gradients;
}

Tensor MixtureLayer::down_gradient(const Workspace& workspace, std::span<const LinearWeights> weights,
                                   const MixtureSaved& saved, kernels::In d_out) const {
  const std::int64_t rows = rows_here(saved);
  Tensor gradient = make_rows(workspace, d_out.dtype, rows, inner);
  if (rows == 0) return gradient;
  kernels::run(kernels::GroupedGemmInputGradient{.shape = grouped(groups(saved), inner, hidden),
                                                 .through_gelu = in_products(),
                                                 .dy = d_out,
                                                 .w = weights_of(weights, ranks),
                                                 .pre = saved.mlp.pre.in(),
                                                 .dx = gradient.out()},
               workspace.where);
  return gradient;
}

Tensor MixtureLayer::activation_gradient(const Workspace& workspace, MixtureSaved& saved, kernels::In d_act) const {
  return saved.mlp.pre.given() ? mlp(saved).activation_gradient(workspace, saved.mlp, d_act) : Tensor{};
}

Tensor MixtureLayer::up_gradient(const Workspace& workspace, std::span<const LinearWeights> weights,
                                 const MixtureSaved& saved, kernels::In d_pre) const {
  const std::int64_t rows = rows_here(saved);
  Tensor gradient = make_rows(workspace, d_pre.dtype, rows, hidden);
  if (rows == 0) return gradient;
  kernels::run(kernels::GroupedGemmInputGradient{.shape = grouped(groups(saved), hidden, pre_columns()),
                                                 .dy = d_pre,
                                                 .w = weights_of(weights, ranks),
                                                 .dx = gradient.out()},
               workspace.where);
  return gradient;
}

// Rows of different ranks are processed in turn because they add to the same gradients.
void MixtureLayer::weight_gradient(const Workspace& workspace, const MixtureSaved& saved, const Tensor& x,
                                   const Tensor& dy, std::span<const LinearGradients> into) const {
  const std::vector<std::int64_t> all = groups(saved);
  const std::int64_t rows = sum_of(all);
  if (rows == 0) return;
  const std::int64_t inputs = x.elems() / rows;
  const std::int64_t outputs = dy.elems() / rows;
  std::int64_t first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + rank * experts_here();
    const std::vector<std::int64_t> of_rank(begin, begin + experts_here());
    const std::int64_t count = sum_of(of_rank);
    if (count == 0) continue;
    kernels::GroupedGemmWeightGradient product{.shape = grouped(of_rank, inputs, outputs),
                                               .with_bias = into.front().bias.given(),
                                               .x = x.in(first * inputs, count * inputs),
                                               .dy = dy.in(first * outputs, count * outputs)};
    for (const LinearGradients& expert : into) {
      product.dw.push_back(expert.weight);
      if (product.with_bias) product.dbias.push_back(expert.bias);
    }
    kernels::run(product, workspace.where);
    first += count;
  }
}

void MixtureLayer::permute_gradient(const Workspace& workspace, const MixtureSaved& saved, kernels::In d_sent,
                                    kernels::Out dx) const {
  kernels::run(kernels::Unpermute{.tokens = router.tokens,
                                  .top_k = router.top_k,
                                  .rows = rows_sent(),
                                  .columns = hidden,
                                  .with_gates = false,
                                  .y = d_sent,
                                  .slots = saved.slots.in(),
                                  .out = dx},
               workspace.where);
}

Tensor MixtureLayer::router_gradient(const Workspace& workspace, kernels::In weight, const MixtureSaved& saved,
                                     kernels::In d_gates, const MixtureLosses& losses, kernels::InOut dx) const {
  Tensor d_logits = workspace.memory.make(MemoryKind::activations, dx.dtype, saved.logits.elems());
  kernels::run(kernels::RouterBackward{.shape = router,
                                       .balance_scale = losses.balance_scale,
                                       .z_scale = losses.z_scale,
                                       .logits = saved.logits.in(),
                                       .choices = saved.choices.in(),
                                       .d_gates = d_gates,
                                       .counts = saved.counts.in(),
                                       .d_logits = d_logits.out()},
               workspace.where);
  const Tensor through = workspace.memory.make(MemoryKind::activations, dx.dtype, dx.elems);
  Linear{{router.tokens, hidden, router.experts}}.input_gradient(workspace, weight, d_logits.in(), through.out());
  kernels::run(kernels::ResidualAdd{.count = dx.elems, .a = dx.in(), .b = through.in(), .y = dx.out()},
               workspace.where);
  return d_logits;
}

void MixtureLayer::router_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits,
                                          kernels::InOut into) const {
  Linear{{router.tokens, hidden, router.experts}}.weight_gradient(workspace, x, d_logits, {into});
}

Exchange MixtureLayer::exchange_counts(const Workspace& workspace, const MixtureSaved& saved, Tensor& all) const {
  all = workspace.memory.make(MemoryKind::buffers, core::DType::i32, ranks * router.experts);
  return {saved.counts.in(), all.out()};
}

void MixtureLayer::counts_exchanged(const Workspace& workspace, const Tensor& all, MixtureSaved& saved) const {
  const std::vector<std::int32_t> counts = on_host(workspace, all);
  saved.all_rows.assign(counts.begin(), counts.end());
}

std::shared_ptr<const collectives::CountMatrix> MixtureLayer::matrix(const MixtureSaved& saved, bool back) const {
  if (capacity > 0) return nullptr;
  auto matrix = std::make_shared<collectives::CountMatrix>();
  matrix->num_ranks = ranks;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      matrix->counts.push_back(hidden * (back ? rows_to(saved, to, from) : rows_to(saved, from, to)));
    }
  }
  return matrix;
}

Exchange MixtureLayer::dispatch(const Workspace& workspace, const MixtureSaved& saved, const Tensor& sent,
                                Tensor& to) const {
  to = make_rows(workspace, sent.dtype(), rows_here(saved), hidden);
  return {sent.in(), to.out(), matrix(saved, false)};
}

Exchange MixtureLayer::combine(const Workspace& workspace, const MixtureSaved& saved, const Tensor& here,
                               Tensor& to) const {
  to = make_rows(workspace, here.dtype(), rows_sent(), hidden);
  return {here.in(), to.out(), matrix(saved, true)};
}

std::int64_t MixtureLayer::sent_bytes(const MixtureSaved& saved, core::DType dtype) const {
  std::int64_t rows = 0;
  for (int to = 0; to < ranks; ++to) rows += to == index ? 0 : rows_to(saved, index, to);
  return rows * hidden * static_cast<std::int64_t>(core::size_of(dtype));
}

}  // namespace lockstep::parallel
