#include "workload/operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "workload/operation_parts.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GroupKind;

// Names as printed, in the order of OperationKind.
constexpr std::array<std::string_view, 45> kNames{
    "none",
    "word embedding",
    "leave tensor ranks",
    "positions",
    "dropout",
    "norm",
    "enter tensor ranks",
    "queries, keys, values",
    "rotary positions",
    "split of heads",
    "exchange of context ranks",
    "attention",
    "merge of context ranks",
    "scores",
    "softmax",
    "dropout of scores",
    "values",
    "projection",
    "leave tensor ranks",
    "dropout and residual",
    "norm",
    "router",
    "permute",
    "dispatch over groups",
    "dispatch",
    "enter tensor ranks",
    "shared experts",
    "leave tensor ranks",
    "enter tensor ranks",
    "mlp up",
    "activation",
    "mlp down",
    "leave tensor ranks",
    "combine",
    "combine over groups",
    "unpermute",
    "residual",
    "part of an input",
    "sums of a norm",
    "norm",
    "enter tensor ranks",
    "logits",
    "statistics of the loss",
    "predicted logits",
    "sums",
};

Operation core(Operation op) {
  op.core = true;
  return op;
}

// Scores in memory: a product, softmax, dropout, and the product with the values (2205.05198, section 4.1).
void attention_in_passes(std::vector<Operation>& ops, const Sizes& at) {
  const double written = at.element * at.scores;
  const KernelCall call = other(at, KernelClass::attention, 2 * at.scores * at.head_size,
                                written + at.element * at.tokens * at.queries + at.element * at.key_rows() * at.keys);
  Operation batched;
  batched.forward = {call};
  batched.input_gradient = {call, call};
  batched.kind = OperationKind::scores;
  ops.push_back(core(batched));
  ops.push_back(core(pass(OperationKind::softmax, at, 2 * written, 3 * written, written)));
  if (at.model.dropout) {
    const double bytes = 2 * written + at.scores;
    ops.push_back(core(pass(OperationKind::scores_dropout, at, bytes, bytes, written + at.scores)));
  }
  batched.kind = OperationKind::values;
  ops.push_back(core(batched));
}

// Dao et al. 2022 (arXiv:2205.14135): scores stay on the chip. A causal kernel skips the part above the diagonal; the
// backward has five products for the forward's two. The output and one f32 per row (the sum) are kept.
Operation flash_attention(const Sizes& at) {
  Operation op{.kind = OperationKind::core};
  op.kept_bytes = at.element * at.tokens * at.queries + 4 * at.tokens * at.queries / at.head_size;
  op.keeps_output = true;
  const kernels::AttentionShape shape{.batch = at.layout.microbatch_size,
                                      .heads = at.model.heads / at.layout.tp,
                                      .queries = at.model.sequence,
                                      .keys = at.all_keys,
                                      .head_columns = at.model.head_size,
                                      .qkv_stride = whole(at.queries + 2 * at.keys),
                                      .kv_heads = at.model.kv_heads / at.layout.tp};
  op.forward = {kernel_call(kernels::AttentionForward{.shape = shape}, at.layout.compute)};
  op.input_gradient = {kernel_call(kernels::AttentionBackward{.shape = shape}, at.layout.compute)};
  return op;
}

// Rotates queries and keys in place, next to the values.
Operation rotary(const Sizes& at) {
  if (!at.fused) {
    const double turned = 2 * at.element * at.tokens * (at.queries + at.keys);
    return pass(OperationKind::rotary, at, turned, turned, 0);
  }
  // On context-parallel ranks each chunk has positions of its own (workload/context_list.h).
  const std::int64_t chunks = at.layout.cp == 1 ? 1 : chunks_per_rank(at.layout.cp_way);
  const double calls = at.layout.cp == 1 ? 1 : static_cast<double>(at.layout.microbatch_size * chunks);
  kernels::Rotary args{.rows = whole(at.tokens / calls),
                       .length = at.model.sequence / at.layout.cp / chunks,
                       .heads = (at.model.heads + at.model.kv_heads) / at.layout.tp,
                       .head_columns = at.model.head_size,
                       .stride = whole(at.queries + 2 * at.keys)};
  Operation op{.kind = OperationKind::rotary};
  op.forward = {kernel_call(args, at.layout.compute, calls)};
  args.backward = true;
  op.input_gradient = {kernel_call(args, at.layout.compute, calls)};
  return op;
}

void attention(std::vector<Operation>& ops, const Sizes& at) {
  if (!at.model.learned_positions) ops.push_back(rotary(at));
  const bool shares_context = at.layout.cp > 1;
  if (shares_context && (at.layout.flash || at.layout.cp_way == ContextWay::colossal)) {
    for (Operation& op : context_operations(at.model, at.layout)) ops.push_back(std::move(op));
    return;
  }
  if (at.layout.flash) {
    ops.push_back(core(flash_attention(at)));
    return;
  }
  // With scores in memory, keys and values of all context-parallel ranks are gathered first, whatever the form, and
  // their gradients are summed.
  if (shares_context) {
    const double all_keys = 2 * at.element * at.tokens * at.keys * at.layout.cp;
    ops.push_back(exchange(OperationKind::exchange_context, GroupKind::context, Comm::all_gather, Comm::reduce_scatter,
                           all_keys));
  }
  attention_in_passes(ops, at);
}

// Between the products of an MLP of this many tokens and width `width` on this rank.
Operation activation(const Sizes& at, double tokens, double width) {
  const double wide = at.element * tokens * width;
  const core::DType dtype = at.layout.compute;
  const bool gated = at.model.gated;
  if (!at.fused && gated) return pass(OperationKind::activation, at, 3 * wide, 5 * wide, 2 * wide);
  if (!at.fused) return pass(OperationKind::activation, at, 2 * wide, 3 * wide, wide);
  Operation op{.kind = OperationKind::activation};
  op.kept_bytes = gated ? 2 * wide : wide;
  const std::int64_t rows = whole(tokens);
  const std::int64_t columns = whole(width);
  if (gated) {
    op.forward = {kernel_call(kernels::SwigluForward{.rows = rows, .columns = columns}, dtype)};
    op.input_gradient = {kernel_call(kernels::SwigluBackward{.rows = rows, .columns = columns}, dtype)};
  } else {
    op.forward = {kernel_call(kernels::GeluForward{.count = rows * columns}, dtype)};
    op.input_gradient = {kernel_call(kernels::GeluBackward{.count = rows * columns}, dtype)};
  }
  return op;
}

// For `tokens` tokens, in `count` equal parts (experts) of this width on this rank.
void mlp(std::vector<Operation>& ops, const Sizes& at, double tokens, double width, double count) {
  const bool gated = at.model.gated;
  const bool in_products = !has_activation(at.model, at.layout);  // bias and GELU
  const double wide = at.element * tokens * width;
  Operation up = entered_product(OperationKind::up, at, tokens / count, width * (gated ? 2 : 1), count,
                                 {in_products ? kernels::Epilogue::bias_gelu : kernels::Epilogue::none});
  if (in_products) up.kept_bytes += wide;  // the input of the GELU
  ops.push_back(up);
  if (!in_products) {
    ops.push_back(activation(at, tokens, width));
  }
  ops.push_back(left_product(OperationKind::down, at, tokens / count, width, count, {bias_of(at), in_products}));
}

// Tile by tile: outputs are summed, in the forward of the second product, in the backward of the first.
void tiled_mlp(std::vector<Operation>& ops, const Sizes& at) {
  const double rows_bytes = at.element * at.tokens * at.hidden;
  const KernelCall add = kernel_call(kernels::ResidualAdd{.count = whole(at.tokens * at.hidden)}, at.layout.compute);
  for (std::int32_t t = 0; t < at.layout.mlp_tiles; ++t) {
    std::vector<Operation> tile;
    mlp(tile, at, at.tokens, at.ffn / at.layout.mlp_tiles, 1);
    if (t > 0) {  // all tiles have the same input, and the same gradient of the output
      tile.front().kept_bytes -= rows_bytes;
      tile.front().later_bytes -= rows_bytes;
      tile.back().later_bytes -= rows_bytes;
      tile.back().forward.push_back(add);
    }
    if (t + 1 < at.layout.mlp_tiles) tile.front().input_gradient.push_back(add);
    for (Operation& op : tile) {
      op.turn = static_cast<std::uint16_t>(t + 1);
      ops.push_back(std::move(op));
    }
  }
}

// The shared experts as one piece, which a dispatch can overlap. Their input is also kept for the router's product.
Operation shared_experts(const Sizes& at) {
  std::vector<Operation> ops;
  mlp(ops, at, at.tokens, static_cast<double>(at.model.shared_hidden) / at.tensor, 1);
  Operation all{.kind = OperationKind::shared_experts};
  const auto append = [](std::vector<KernelCall>& to, const std::vector<KernelCall>& calls) {
    to.insert(to.end(), calls.begin(), calls.end());
  };
  for (const Operation& op : ops) {
    append(all.forward, op.forward);
    all.kept_bytes += op.kept_bytes;
    all.later_bytes += op.later_bytes;
  }
  for (std::size_t i = ops.size(); i-- > 0;) {
    append(all.input_gradient, ops[i].input_gradient);
    append(all.weight_gradient, ops[i].weight_gradient);
  }
  all.regather = ops.front().regather;
  all.kept_bytes -= at.element * at.rows * at.hidden;
  return all;
}

// Mean number of parts, of `parts` equal parts of a model's experts, from which an even router chooses any expert for a
// token: with e of E experts per part, parts (1 - (E - e)! (E - k)! / (E! (E - e - k)!)). With node-limited routing the
// experts are in the groups allowed for the token.
double parts_of_token(const Model& model, double parts) {
  const double reached = static_cast<double>(most_groups_of_token(model)) / static_cast<double>(model.expert_groups);
  const double experts = reached * static_cast<double>(model.experts);
  double none = 1;  // probability that no expert of a part is chosen
  for (std::int64_t i = 0; i < model.experts_per_token; ++i) {
    const auto before = static_cast<double>(i);
    none *= std::max(0.0, experts - experts / (reached * parts) - before) / (experts - before);
  }
  return reached * parts * (1 - none);
}

// Rows per token on the way to its experts: a copy for each expert, or one for each rank that has any of the experts.
double rows_per_token(const Model& model, const Layout& layout) {
  if (!layout.dispatch_tokens) return static_cast<double>(model.experts_per_token);
  return parts_of_token(model, layout.ep);
}

// Each token uses `experts_per_token` experts, evenly (Lepikhin et al. 2020, arXiv:2006.16668; all-to-all before and
// after, forward and backward). With a skew the work is the busiest rank's, for which all others wait: it
// receives and computes that many times more rows.
void mixture(std::vector<Operation>& ops, const Sizes& at) {
  const std::int64_t capacity = capacity_of(at.model, whole(at.rows));
  const double copies = capacity == 0 ? static_cast<double>(at.model.experts_per_token)
                                      : static_cast<double>(capacity * at.model.experts) / at.rows;
  const double row_bytes = at.element * at.rows * at.hidden;
  const double sent = capacity == 0 ? rows_per_token(at.model, at.layout) : copies;
  const double here = at.layout.skew * copies * at.tokens;  // rows of the experts
  const auto all_to_all = [&](OperationKind kind, GroupKind group, double rows) {
    ops.push_back(exchange(kind, group, Comm::all_to_all, Comm::all_to_all, at.layout.skew * rows * row_bytes));
  };
  const bool hops = dispatches_in_two_hops(at.model, at.layout);
  const auto over_groups = [&](OperationKind kind) {
    if (hops)
      all_to_all(kind, GroupKind::expert_groups, parts_of_token(at.model, static_cast<double>(at.model.expert_groups)));
  };
  const auto among_ranks = [&](OperationKind kind) {
    if (hops ? at.layout.ep > at.model.expert_groups : at.layout.ep > 1) {
      all_to_all(kind, hops ? GroupKind::expert_group : GroupKind::expert, sent);
    }
  };
  ops.push_back(product(OperationKind::router, at, at.rows, static_cast<double>(at.model.experts), at.hidden, 1));
  ops.push_back(pass(OperationKind::permute, at, (1 + copies) * row_bytes, (1 + copies) * row_bytes, 0));
  const bool shared = at.model.shared_hidden > 0;
  if (shared) enter(OperationKind::enter_shared, ops, at, at.tokens);
  over_groups(OperationKind::dispatch_over_groups);
  if (!hops) among_ranks(OperationKind::dispatch);
  if (shared) {
    // The first exchange is the longest: with two hops, the one between nodes.
    if (ops.back().forward_exchange.comm == Comm::all_to_all) ops.back().beside = at.layout.overlap_tp;
    ops.push_back(shared_experts(at));
    leave(OperationKind::leave_shared, ops, at, at.tokens);
  }
  if (hops) among_ranks(OperationKind::dispatch);
  enter(OperationKind::enter_mlp, ops, at, here);
  mlp(ops, at, here, at.ffn, static_cast<double>(at.model.experts) / at.layout.ep);
  leave(OperationKind::leave_mlp, ops, at, here);
  among_ranks(OperationKind::combine);
  over_groups(OperationKind::combine_over_groups);
  ops.push_back(
      pass(OperationKind::unpermute, at, (1 + copies) * row_bytes, (1 + 2 * copies) * row_bytes, copies * row_bytes));
}

// The loss from logits in f32, as in Megatron-LM: cast, maximum, subtract, exponent, sum; backward scale and cast.
// Tensor-parallel ranks exchange maximum, sum and the predicted logit of each token (1909.08053, section 3).
void loss_in_passes(std::vector<Operation>& ops, const Sizes& at, double logits) {
  ops.push_back(pass(OperationKind::loss, at, 30 * logits, 14 * logits, 4 * logits));
  if (at.tensor == 1) return;
  for (const OperationKind kind :
       {OperationKind::exchange_stats, OperationKind::exchange_predicted, OperationKind::exchange_sum}) {
    ops.push_back(exchange(kind, GroupKind::tensor, Comm::all_reduce, Comm::none, 4 * at.tokens));
  }
}

// The gradient overwrites the logits. Tensor-parallel ranks gather three floats per token.
void fused_loss(std::vector<Operation>& ops, const Sizes& at, std::int64_t columns) {
  constexpr double kStatsBytes = 3 * sizeof(float);
  const std::int64_t rows = whole(at.tokens);
  Operation loss{.kind = OperationKind::loss};
  if (at.layout.tp == 1) {
    loss.forward = {kernel_call(kernels::CrossEntropy{.rows = rows, .columns = columns, .valid_columns = columns},
                                at.layout.compute)};
  } else {
    ops.back().forward.push_back(kernel_call(
        kernels::CrossEntropyStats{.rows = rows, .columns = columns, .valid_columns = columns, .first_id = 0},
        at.layout.compute));
    ops.push_back(exchange(OperationKind::exchange_stats, GroupKind::tensor, Comm::all_gather, Comm::none,
                           at.tensor * at.tokens * kStatsBytes));
    loss.forward = {kernel_call(
        kernels::CrossEntropyFinish{
            .rows = rows, .columns = columns, .valid_columns = columns, .first_id = 0, .shards = at.layout.tp},
        at.layout.compute)};
  }
  loss.kept_bytes = at.element * at.tokens * static_cast<double>(columns);
  ops.push_back(loss);
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  return kind == OperationKind::loss ? "cross-entropy" : kNames.at(static_cast<std::size_t>(kind));
}

bool has_activation(const Model& model, const Layout& layout) {
  return model.dropout || model.gated || !model.biases || layout.fp8 != Fp8::none || layout.has_grid();
}

std::optional<kernels::Fp8Recipe> fp8_recipe_of(const Layout& layout) {
  using kernels::ScalePer;
  switch (layout.fp8) {
    case Fp8::tensor:
      return kernels::Fp8Recipe{ScalePer::tensor, ScalePer::tensor, layout.fp8_delayed};
    case Fp8::row:
      return kernels::Fp8Recipe{ScalePer::row, ScalePer::row};
    case Fp8::block:
      return kernels::Fp8Recipe{ScalePer::tile, ScalePer::block};
    default:
      return std::nullopt;
  }
}

double tokens_of(const Model& model, const Layout& layout) {
  return static_cast<double>(model.sequence) / layout.cp * static_cast<double>(layout.microbatch_size);
}

double rows_of(const Model& model, const Layout& layout) {
  return tokens_of(model, layout) / (layout.shares_rows() ? layout.tp : 1);
}

double input_bytes(const Model& model, const Layout& layout) {
  return static_cast<double>(core::size_of(layout.compute)) * rows_of(model, layout) *
         static_cast<double>(model.hidden);
}

double kept_input_bytes(const Model& model, const Layout& layout) {
  return input_bytes(model, layout) / (layout.partition_activations ? layout.tp : 1);
}

std::int64_t message_bytes(const Model& model, const Layout& layout) {
  const bool in_parts = layout.shares_rows() || !layout.scatter_gather;  // as stored, sharded or not
  const double output = input_bytes(model, layout);
  return static_cast<std::int64_t>(in_parts ? output : output / layout.tp);
}

double kept_bytes(const std::vector<Operation>& operations) {
  double bytes = 0;
  for (const Operation& op : operations) bytes += op.kept_bytes;
  return bytes;
}

bool dispatches_in_two_hops(const Model& model, const Layout& layout) {
  return layout.dispatch_tokens && model.expert_groups > 1 && layout.ep > 1;
}

std::int64_t capacity_of(const Model& model, std::int64_t tokens) {
  if (model.capacity_factor == 0) return 0;
  const double even = static_cast<double>(tokens * model.experts_per_token) / static_cast<double>(model.experts);
  return std::max<std::int64_t>(1, std::llround(std::ceil(model.capacity_factor * even)));
}

std::vector<Operation> layer_operations(const Model& model, const Layout& layout, std::int64_t earlier_tokens) {
  if (layout.has_grid()) return grid_layer_operations(model, layout);
  const Sizes at(model, layout, earlier_tokens);
  std::vector<Operation> ops;
  ops.push_back(norm(OperationKind::attention_norm, at, false, true));
  enter(OperationKind::enter_attention, ops, at, at.tokens);
  Operation qkv = entered_product(OperationKind::qkv, at, at.tokens, at.queries + 2 * at.keys, 1, {bias_of(at)});
  qkv.kept_bytes += at.element * at.tokens * (at.queries + 2 * at.keys);  // all three, for the backward of attention
  ops.push_back(qkv);
  attention(ops, at);
  Operation projection = left_product(OperationKind::projection, at, at.tokens, at.queries, 1, {bias_of(at)});
  if (layout.flash) projection.kept_bytes = 0;  // the attention has kept its output
  ops.push_back(projection);
  leave(OperationKind::leave_attention, ops, at, at.tokens);
  residual(OperationKind::attention_residual, ops, at);
  ops.push_back(norm(OperationKind::mlp_norm, at, true, true));
  if (model.experts > 0) {
    mixture(ops, at);
  } else {
    enter(OperationKind::enter_mlp, ops, at, at.tokens);
    if (layout.mlp_tiles > 1) {
      tiled_mlp(ops, at);
    } else {
      mlp(ops, at, at.tokens, at.ffn, 1);
    }
    leave(OperationKind::leave_mlp, ops, at, at.tokens);
  }
  residual(OperationKind::mlp_residual, ops, at);
  if (layout.mlp_tiles > 1 && ops.back().kind == OperationKind::mlp_residual) {  // without weights: with the last tile
    ops.back().turn = static_cast<std::uint16_t>(layout.mlp_tiles);
  }
  return ops;
}

Operation kept_input_operation(const Model& model, const Layout& layout) {
  const Sizes at(model, layout);
  const double input = input_bytes(model, layout);
  Operation op = exchange(OperationKind::keep_input, GroupKind::tensor, Comm::none, Comm::all_gather, input);
  const std::int64_t part = whole(at.rows * at.hidden / at.tensor);
  op.forward = {kernel_call(kernels::CopyRows{.rows = 1, .columns = part}, layout.compute)};
  op.kept_bytes = kept_input_bytes(model, layout);
  return op;
}

std::vector<Operation> embedding_operations(const Model& model, const Layout& layout) {
  if (layout.has_grid()) return grid_embedding_operations(model, layout);
  const Sizes at(model, layout);
  std::vector<Operation> ops;
  Operation embed{.kind = OperationKind::embed};
  const std::int64_t length = at.fused && model.learned_positions ? model.sequence / layout.cp : 0;
  embed.forward = {kernel_call(
      kernels::EmbeddingForward{
          .tokens = whole(at.tokens), .length = length, .rows = words_per_rank(model, layout), .columns = model.hidden},
      layout.compute)};
  embed.weight_gradient = {kernel_call(
      kernels::EmbeddingBackward{
          .tokens = whole(at.tokens), .length = length, .rows = words_per_rank(model, layout), .columns = model.hidden},
      layout.compute)};
  ops.push_back(embed);
  leave(OperationKind::leave_embedding, ops, at, at.tokens);
  if (at.fused) return ops;
  const double elements = at.rows * at.hidden;
  if (model.learned_positions) {
    ops.push_back(pass(OperationKind::positions, at, 3 * at.element * elements, at.element * elements, 0));
  }
  ops.push_back(pass(OperationKind::embedding_dropout, at, (2 * at.element + 1) * elements,
                     (2 * at.element + 1) * elements, elements));
  return ops;
}

std::vector<Operation> head_operations(const Model& model, const Layout& layout) {
  if (layout.has_grid()) return grid_head_operations(model, layout);
  const Sizes at(model, layout);
  const std::int64_t columns = words_per_rank(model, layout);
  std::vector<Operation> ops;
  ops.push_back(norm(OperationKind::head_norm, at, false, false));
  enter(OperationKind::enter_head, ops, at, at.tokens);
  ops.push_back(entered_product(OperationKind::logits, at, at.tokens, static_cast<double>(columns), 1));
  if (at.fused) {
    fused_loss(ops, at, columns);
  } else {
    loss_in_passes(ops, at, at.tokens * static_cast<double>(columns));
  }
  return ops;
}

}  // namespace lockstep::workload
