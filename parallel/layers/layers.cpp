#include "parallel/layers/layers.h"

#include <algorithm>
#include <utility>

#include "core/dtype.h"
#include "kernels/activation/activation.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/residual/residual.h"

namespace lockstep::parallel {

// ---- products of linear layers in 8-bit floats

namespace {

enum class Remembered : std::uint8_t { x, w, dy };

// A view of f32 numbers; empty if there are none.
template <class View>
View part_of(View view, std::int64_t begin, std::int64_t count) {
  if (!view.given()) return view;
  view.data = view.template as<float>() + begin;
  view.elems = count;
  return view;
}

struct Encoded {
  Tensor codes;
  Tensor scales;
};

Encoded encoded(const Workspace& workspace, const Fp8Scaling& scaling, Remembered which, kernels::Fp8Encode args,
                kernels::In x) {
  const auto make = [&](core::DType dtype, std::int64_t elems) {
    return workspace.memory.make(MemoryKind::buffers, dtype, elems);
  };
  Encoded encoded{make(args.to, args.rows * args.columns), make(core::DType::f32, args.blocks())};
  Tensor largest;
  if (args.delayed) {
    args.previous = part_of(scaling.previous, static_cast<std::int64_t>(which), 1);
    args.raised = part_of(scaling.raised, static_cast<std::int64_t>(which), 1);
  } else {
    largest = make(core::DType::f32, args.blocks());
    args.largest = largest.out();
  }
  args.x = x;
  args.scales = encoded.scales.out();
  args.codes = encoded.codes.out();
  kernels::run(args, workspace.where);
  return encoded;
}

template <class Product>
Product with_factors(Product product, const Encoded& a, const Encoded& b) {
  product.a = a.codes.in();
  product.a_scales = a.scales.in();
  product.b = b.codes.in();
  product.b_scales = b.scales.in();
  return product;
}

}  // namespace

Fp8Scaling Fp8Scaling::of_linear(std::int64_t index) const {
  return {recipe, part_of(previous, index * kFp8Tensors, kFp8Tensors),
          part_of(raised, index * kFp8Tensors, kFp8Tensors)};
}

void Fp8Products::forward(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x,
                          kernels::Out y) const {
  const Encoded a = encoded(workspace, scaling, Remembered::x, linear.x(), x);
  const Encoded b = encoded(workspace, scaling, Remembered::w, linear.w(), weight);
  kernels::GemmFp8 product = with_factors(linear.forward(bias.given()), a, b);
  product.bias = bias;
  product.y = y;
  kernels::run(product, workspace.where);
}

void Fp8Products::input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy,
                                 kernels::Out dx) const {
  const Encoded a = encoded(workspace, scaling, Remembered::dy, linear.dy(), dy);
  const Encoded b = encoded(workspace, scaling, Remembered::w, linear.w_transposed(), weight);
  kernels::GemmFp8 product = with_factors(linear.input_gradient(), a, b);
  product.y = dx;
  kernels::run(product, workspace.where);
}

void Fp8Products::weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy, kernels::InOut dw,
                                  kernels::InOut dbias) const {
  const Encoded a = encoded(workspace, scaling, Remembered::dy, linear.dy_transposed(), dy);
  const Encoded b = encoded(workspace, scaling, Remembered::x, linear.x_transposed(), x);
  kernels::GemmFp8Add product = with_factors(linear.weight_gradient(dbias.given()), a, b);
  if (dbias.given()) product.dy = dy;
  product.dw = dw;
  product.dbias = dbias;
  kernels::run(product, workspace.where);
}

// ---- norms

namespace {

void make(const Workspace& workspace, const NormLayer& layer, NormSaved& saved) {
  if (!layer.is_last()) return;
  const auto numbers = [&] { return workspace.memory.make(MemoryKind::activations, core::DType::f32, layer.rows); };
  if (layer.norm == kernels::Norm::layer) saved.mean = numbers();
  saved.rstd = numbers();
}

kernels::NormForward forward_args(const NormLayer& layer, const NormWeights& weights, kernels::In x,
                                  const NormSaved& saved, kernels::Out y) {
  return {.norm = layer.norm,
          .rows = layer.rows,
          .columns = layer.columns,
          .part = layer.part,
          .ranks = layer.ranks,
          .x = x,
          .gamma = weights.gamma,
          .beta = weights.beta,
          .y = y,
          .mean = saved.mean.out(),
          .rstd = saved.rstd.out(),
          .sums = layer.sums};
}

kernels::NormBackward backward_args(const NormLayer& layer, kernels::In gamma, kernels::In x, const NormSaved& saved,
                                    kernels::InOut dy, const NormGradients& into) {
  return {.norm = layer.norm,
          .rows = layer.rows,
          .columns = layer.columns,
          .part = layer.part,
          .ranks = layer.ranks,
          .dy = {dy.data, dy.dtype, dy.elems},
          .x = x,
          .gamma = gamma,
          .mean = saved.mean.in(),
          .rstd = saved.rstd.in(),
          .dx = {dy.data, dy.dtype, dy.elems},
          .dgamma = into.gamma,
          .dbeta = into.beta,
          .sums = layer.sums};
}

}  // namespace

void NormSaved::reset() {
  mean.reset();
  rstd.reset();
}

void NormLayer::forward(const Workspace& workspace, const NormWeights& weights, kernels::In x, NormSaved& saved,
                        kernels::Out y) const {
  make(workspace, *this, saved);
  kernels::run(forward_args(*this, weights, x, saved, y), workspace.where);
}

void NormLayer::forward_of_sum(const Workspace& workspace, const NormWeights& weights, kernels::In x,
                               kernels::In residual, NormSaved& saved, kernels::Out sum, kernels::Out y) const {
  make(workspace, *this, saved);
  const kernels::In earlier_sum{sum.data, sum.dtype, sum.elems};
  kernels::NormForward args = forward_args(*this, weights, is_first() ? x : earlier_sum, saved, y);
  args.with_residual = true;
  args.residual = residual;
  args.sum = sum;
  kernels::run(args, workspace.where);
}

void NormLayer::backward(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved,
                         kernels::InOut dy, const NormGradients& into) const {
  kernels::run(backward_args(*this, gamma, x, saved, dy, into), workspace.where);
}

void NormLayer::backward_with_residual(const Workspace& workspace, kernels::In gamma, kernels::In x,
                                       const NormSaved& saved, kernels::In past_norm, kernels::InOut dy,
                                       const NormGradients& into) const {
  kernels::NormBackward args = backward_args(*this, gamma, x, saved, dy, into);
  args.with_residual = true;
  args.dsum = past_norm;
  kernels::run(args, workspace.where);
}

// ---- attention

kernels::AttentionShape AttentionLayer::shape() const {
  return {.batch = batch,
          .heads = heads,
          .queries = length,
          .keys = length,
          .head_columns = head_columns,
          .causal = causal,
          .qkv_stride = qkv_columns(),
          .kv_heads = kv_heads};
}

kernels::AttentionShape AttentionLayer::shape_over(const EarlierSlice& slice) const {
  kernels::AttentionShape all = shape();
  all.keys = slice.length;
  all.causal = false;
  return all;
}

void AttentionLayer::qkv(const Workspace& workspace, const LinearWeights& weights, kernels::In x, AttentionSaved& saved,
                         const RowTile& tile) const {
  if (tile.is_first()) saved.qkv = workspace.memory.make(MemoryKind::activations, x.dtype, rows() * qkv_columns());
  of_qkv().of_tile(tile).forward(workspace, weights, tile.of(x), tile.of(saved.qkv.out()));
}

void AttentionLayer::rotate(const Workspace& workspace, kernels::Rotary how, const Tensor& qkv,
                            const std::vector<std::int64_t>& first_positions) const {
  const bool at_once = first_positions == std::vector<std::int64_t>{0};
  how.length = length / static_cast<std::int64_t>(first_positions.size());
  how.rows = at_once ? rows() : how.length;
  how.heads = heads + kv_heads;
  how.head_columns = head_columns;
  how.stride = qkv_columns();
  for (std::int64_t row = 0, run = 0; row < rows(); row += how.rows, ++run) {
    how.first_position = first_positions[static_cast<std::size_t>(run) % first_positions.size()];
    how.x = qkv.in(row * how.stride, how.extent());
    how.y = qkv.out(row * how.stride, how.extent());
    kernels::run(how, workspace.where);
  }
}

void AttentionLayer::attend(const Workspace& workspace, const kernels::AttentionShape& shape, const Tensor& queries,
                            const Tensor& keys, Tensor& o, Tensor& lse) const {
  o = workspace.memory.make(MemoryKind::activations, queries.dtype(), rows() * own_columns());
  lse = workspace.memory.make(MemoryKind::activations, core::DType::f32, rows() * heads);
  kernels::run(kernels::AttentionForward{.shape = shape,
                                         .q = queries.in(0, shape.extent()),
                                         .k = keys.in(own_columns(), shape.key_extent()),
                                         .v = keys.in(own_columns() + key_columns(), shape.key_extent()),
                                         .o = o.out(),
                                         .lse = lse.out()},
               workspace.where);
}

void AttentionLayer::core(const Workspace& workspace, AttentionSaved& saved) const {
  attend(workspace, shape(), saved.qkv, saved.qkv, saved.o, saved.lse);
  for (const EarlierSlice& slice : earlier) {
    Tensor o;
    Tensor lse;
    attend(workspace, shape_over(slice), saved.qkv, *slice.qkv, o, lse);
    kernels::AttentionMerge merge{.batch = batch, .heads = heads, .queries = length, .head_columns = head_columns};
    merge.o = saved.o.inout();
    merge.lse = saved.lse.inout();
    merge.part_o = o.in();
    merge.part_lse = lse.in();
    kernels::run(merge, workspace.where);
  }
}

void AttentionLayer::attend_backward(const Workspace& workspace, const kernels::AttentionShape& shape,
                                     const AttentionSaved& saved, kernels::In d_o, const Tensor& keys,
                                     const Tensor& d_queries, const Tensor& d_keys) const {
  const std::int64_t values = own_columns() + key_columns();
  kernels::run(kernels::AttentionBackward{.shape = shape,
                                          .q = saved.qkv.in(0, shape.extent()),
                                          .k = keys.in(own_columns(), shape.key_extent()),
                                          .v = keys.in(values, shape.key_extent()),
                                          .o = saved.o.in(),
                                          .lse = saved.lse.in(),
                                          .d_o = d_o,
                                          .dq = d_queries.out(0, shape.extent()),
                                          .dk = d_keys.out(own_columns(), shape.key_extent()),
                                          .dv = d_keys.out(values, shape.key_extent())},
               workspace.where);
}

namespace {

// Adds to the sum, which is the term itself if it is the first.
void add_to(Tensor& sum, Tensor term, const Workspace& workspace) {
  if (!sum.given()) {
    sum = std::move(term);
    return;
  }
  kernels::run(kernels::ResidualAdd{.count = sum.elems(), .a = sum.in(), .b = term.in(), .y = sum.out()},
               workspace.where);
}

}  // namespace

// Kernels write the gradients of queries or of keys into fused rows, whose other columns are 0: whole rows are added.
Tensor AttentionLayer::core_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In d_o,
                                     Tensor sum) const {
  Tensor own = workspace.memory.make(MemoryKind::activations, d_o.dtype, rows() * qkv_columns());
  attend_backward(workspace, shape(), saved, d_o, saved.qkv, own, own);
  add_to(sum, std::move(own), workspace);
  for (const EarlierSlice& slice : earlier) {
    Tensor d_queries = workspace.memory.make_zeroed(MemoryKind::activations, d_o.dtype, sum.elems());
    Tensor d_keys = workspace.memory.make_zeroed(MemoryKind::activations, d_o.dtype, slice.qkv->elems());
    attend_backward(workspace, shape_over(slice), saved, d_o, *slice.qkv, d_queries, d_keys);
    add_to(sum, std::move(d_queries), workspace);
    add_to(*slice.d_qkv, std::move(d_keys), workspace);
  }
  return sum;
}

Tensor AttentionLayer::projection_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy,
                                           const RowTile& tile, Tensor earlier_tiles) const {
  Tensor d_o = std::move(earlier_tiles);
  if (tile.is_first()) d_o = workspace.memory.make(MemoryKind::activations, dy.dtype, rows() * own_columns());
  of_projection().of_tile(tile).input_gradient(workspace, weight, tile.of(dy), tile.of(d_o.out()));
  return d_o;
}

// ---- the MLP

void MlpLayer::up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved,
                  const RowTile& tile) const {
  const Linear up = of_up().of_tile(tile);
  if (tile.is_first()) saved.pre = make(workspace, x.dtype, pre_columns());
  if (!in_products()) return up.forward(workspace, weights, tile.of(x), tile.of(saved.pre.out()));
  if (tile.is_first()) saved.act = make(workspace, x.dtype, inner);
  up.forward_gelu(workspace, weights, tile.of(x), tile.of(saved.pre.out()), tile.of(saved.act.out()));
}

void MlpLayer::activate(const Workspace& workspace, MlpSaved& saved) const {
  saved.act = make(workspace, saved.pre.dtype(), inner);
  if (activation == Activation::swiglu) {
    return kernels::run(
        kernels::SwigluForward{.rows = rows, .columns = inner, .x = saved.pre.in(), .y = saved.act.out()},
        workspace.where);
  }
  kernels::run(kernels::GeluForward{.count = saved.act.elems(), .x = saved.pre.in(), .y = saved.act.out()},
               workspace.where);
}

Tensor MlpLayer::down_gradient(const Workspace& workspace, kernels::In weight, const MlpSaved& saved, kernels::In dy,
                               const RowTile& tile, Tensor earlier_tiles) const {
  const Linear down = of_down().of_tile(tile);
  Tensor gradient = std::move(earlier_tiles);
  if (tile.is_first()) gradient = make(workspace, dy.dtype, inner);
  const kernels::Out to = tile.of(gradient.out());
  if (in_products()) {
    down.input_gradient_through_gelu(workspace, weight, tile.of(dy), tile.of(saved.pre.in()), to);
  } else {
    down.input_gradient(workspace, weight, tile.of(dy), to);
  }
  return gradient;
}

Tensor MlpLayer::activation_gradient(const Workspace& workspace, MlpSaved& saved, kernels::In d_act) const {
  const bool gated = activation == Activation::swiglu;
  const kernels::In pre = saved.pre.in();
  Tensor d_pre = gated ? std::move(saved.pre) : make(workspace, d_act.dtype, inner);
  if (gated) {
    kernels::run(kernels::SwigluBackward{.rows = rows, .columns = inner, .x = pre, .dy = d_act, .dx = d_pre.out()},
                 workspace.where);
  } else {
    kernels::run(kernels::GeluBackward{.count = d_act.elems, .x = pre, .dy = d_act, .dx = d_pre.out()},
                 workspace.where);
  }
  return d_pre;
}

// ---- the vocabulary

Words words_of(std::int64_t vocabulary, std::int64_t rows, std::int64_t index) {
  const std::int64_t first = rows * index;
  return {.rows = rows, .valid = std::clamp<std::int64_t>(vocabulary - first, 0, rows), .first = first};
}

void EmbeddingLayer::forward(const Workspace& workspace, kernels::In ids, kernels::In table, kernels::In positions,
                             kernels::Out y) const {
  kernels::run(kernels::EmbeddingForward{.tokens = tokens,
                                         .length = positions.given() ? length : 0,
                                         .rows = words.rows,
                                         .columns = hidden,
                                         .first_id = words.first,
                                         .ids = ids,
                                         .table = table,
                                         .positions = positions,
                                         .y = y},
               workspace.where);
}

void EmbeddingLayer::backward(const Workspace& workspace, kernels::In ids, kernels::In dy, kernels::InOut d_table,
                              kernels::InOut d_positions) const {
  kernels::run(kernels::EmbeddingBackward{.tokens = tokens,
                                          .length = length,
                                          .rows = words.rows,
                                          .columns = hidden,
                                          .first_id = words.first,
                                          .ids = ids,
                                          .dy = dy,
                                          .dtable = d_table,
                                          .dpositions = d_positions},
               workspace.where);
}

void HeadLayer::logits(const Workspace& workspace, kernels::In table, kernels::In x, kernels::Out y) const {
  of_table().forward(workspace, {.weight = table}, x, y);
}

void HeadLayer::stats(const Workspace& workspace, kernels::In targets, kernels::In logits, kernels::Out of_rank) const {
  kernels::run(kernels::CrossEntropyStats{.rows = rows,
                                          .columns = words.rows,
                                          .valid_columns = words.valid,
                                          .first_id = words.first,
                                          .targets = targets,
                                          .logits = logits,
                                          .stats = of_rank},
               workspace.where);
}

void HeadLayer::loss(const Workspace& workspace, kernels::In targets, kernels::In all_stats, float scale,
                     kernels::InOut logits, kernels::Out losses) const {
  if (shards == 1) {
    return kernels::run(kernels::CrossEntropy{.rows = rows,
                                              .columns = words.rows,
                                              .valid_columns = words.valid,
                                              .scale = scale,
                                              .targets = targets,
                                              .logits = logits,
                                              .losses = losses},
                        workspace.where);
  }
  kernels::run(kernels::CrossEntropyFinish{.rows = rows,
                                           .columns = words.rows,
                                           .valid_columns = words.valid,
                                           .first_id = words.first,
                                           .shards = shards,
                                           .scale = scale,
                                           .targets = targets,
                                           .stats = all_stats,
                                           .logits = logits,
                                           .losses = losses},
               workspace.where);
}

void HeadLayer::input_gradient(const Workspace& workspace, kernels::In table, kernels::In d_logits,
                               kernels::Out dx) const {
  of_table().input_gradient(workspace, table, d_logits, dx);
}

void HeadLayer::weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits,
                                kernels::InOut d_table) const {
  of_table().weight_gradient(workspace, x, d_logits, {.weight = d_table});
}

}  // namespace lockstep::parallel
