#include "simulator/model/layer_ops.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;

constexpr double kElement = 2;  // bytes of an activation or a weight, 16 bits

// The sizes of one rank's part, by the letters of the papers.
struct Sizes {
  Sizes(const Model& m, const Layout& l)
      : sequence_parallel(l.sequence_parallel && l.tp > 1),
        dropout(m.dropout),
        tensor(l.tp),
        tokens(tokens_of(m, l)),
        rows(sequence_parallel ? tokens / tensor : tokens),
        hidden(static_cast<double>(m.hidden)),
        queries(static_cast<double>(m.heads * m.head_size) / tensor),
        keys(static_cast<double>(m.kv_heads * m.head_size) / tensor),
        ffn(static_cast<double>(m.ffn_hidden) / tensor),
        head_size(static_cast<double>(m.head_size)),
        scores(static_cast<double>(m.heads) / tensor * tokens * static_cast<double>(m.sequence)),
        grad_bytes(l.grad_bytes) {}

  bool sequence_parallel;
  bool dropout;
  double tensor;   // t
  double tokens;   // s b: inside of tensor-parallel parts
  double rows;     // between them: s b, or s b / t with sequence parallelism
  double hidden;   // h
  double queries;  // columns of the queries here: h / t
  double keys;     // of the keys, and of the values
  double ffn;
  double head_size;
  double scores;  // elements, a s s b / t
  double grad_bytes;
};

LayerOp pass(std::string_view name, double forward_bytes, double backward_bytes, double kept) {
  LayerOp op;
  op.name = name;
  op.forward = {{Kernel::Kind::pass, 0, forward_bytes}};
  if (backward_bytes > 0) op.input_gradient = {{Kernel::Kind::pass, 0, backward_bytes}};
  op.kept_bytes = kept;
  return op;
}

// `count` products of rows x inner by inner x columns. The weight's gradient is added to what is there.
LayerOp product(std::string_view name, const Sizes& at, double rows, double columns, double inner, double count) {
  const double flops = 2 * rows * columns * inner;
  const double ends = kElement * rows * (inner + columns);
  const double weight = inner * columns;
  const Kernel forward{Kernel::Kind::product, flops, ends + kElement * weight, count};
  LayerOp op;
  op.name = name;
  op.forward = {forward};
  op.input_gradient = {forward};
  op.weight_gradient = {{Kernel::Kind::product, flops, ends + 2 * at.grad_bytes * weight, count}};
  op.kept_bytes = kElement * count * rows * inner;
  op.later_bytes = kElement * count * rows * (inner + columns);
  return op;
}

// A product whose input comes out of enter(): with sequence parallelism it is kept in parts.
LayerOp entered_product(std::string_view name, const Sizes& at, double rows, double columns, double count) {
  LayerOp op = product(name, at, rows, columns, at.hidden, count);
  if (!at.sequence_parallel) return op;
  const double gathered = op.kept_bytes;
  op.kept_bytes = gathered / at.tensor;
  op.later_bytes -= gathered - op.kept_bytes;
  op.regather = {Comm::all_gather, GroupKind::tensor, gathered};
  return op;
}

LayerOp exchange(std::string_view name, GroupKind group, Comm forward, Comm backward, double bytes) {
  LayerOp op;
  op.name = name;
  op.forward_exchange = {forward, group, forward == Comm::none ? 0 : bytes};
  op.backward_exchange = {backward, group, backward == Comm::none ? 0 : bytes};
  return op;
}

// Into a tensor-parallel part, and out of it (Shoeybi et al. 2019, arXiv:1909.08053, f and g; with sequence
// parallelism Korthikanti et al. 2022, arXiv:2205.05198, g and g bar).
void enter(std::vector<LayerOp>& ops, const Sizes& at, double tokens) {
  if (at.tensor == 1) return;
  const Comm forward = at.sequence_parallel ? Comm::all_gather : Comm::none;
  const Comm backward = at.sequence_parallel ? Comm::reduce_scatter : Comm::all_reduce;
  ops.push_back(exchange("enter", GroupKind::tensor, forward, backward, kElement * tokens * at.hidden));
}
void leave(std::vector<LayerOp>& ops, const Sizes& at, double tokens) {
  if (at.tensor == 1) return;
  const Comm forward = at.sequence_parallel ? Comm::reduce_scatter : Comm::all_reduce;
  const Comm backward = at.sequence_parallel ? Comm::all_gather : Comm::none;
  ops.push_back(exchange("leave", GroupKind::tensor, forward, backward, kElement * tokens * at.hidden));
}

// Reads x, writes y. Backward: reads x, dy and the gradient that passes by, writes dx.
LayerOp norm(const Sizes& at) {
  const double x = kElement * at.rows * at.hidden;
  return pass("norm", 2 * x, 4 * x, x);
}

// Dropout and the residual: reads both, writes the sum and a mask of bytes.
LayerOp residual(const Sizes& at) {
  const double elements = at.rows * at.hidden;
  if (!at.dropout) return pass("residual", 3 * kElement * elements, 0, 0);
  return pass("dropout and residual", (3 * kElement + 1) * elements, (2 * kElement + 1) * elements, elements);
}

LayerOp core(LayerOp op) {
  op.core = true;
  return op;
}

// Scores in memory: a product, softmax, dropout, and the product with the values (2205.05198, section 4.1).
void attention_in_passes(std::vector<LayerOp>& ops, const Sizes& at) {
  const double written = kElement * at.scores;
  const Kernel one{Kernel::Kind::attention, 2 * at.scores * at.head_size,
                   written + kElement * at.tokens * (at.queries + at.keys), 1};
  LayerOp batched;
  batched.forward = {one};
  batched.input_gradient = {one, one};
  batched.name = "scores";
  ops.push_back(core(batched));
  ops.push_back(core(pass("softmax", 2 * written, 3 * written, written)));
  if (at.dropout) {
    const double bytes = 2 * written + at.scores;
    ops.push_back(core(pass("dropout of scores", bytes, bytes, written + at.scores)));
  }
  batched.name = "values";
  ops.push_back(core(batched));
}

// Dao et al. 2022 (arXiv:2205.14135): scores stay on the chip. A causal kernel skips what lies above the diagonal; the
// backward has five products where the forward has two.
LayerOp flash_attention(const Sizes& at, const Model& model, const Layout& layout) {
  const double flops = 0.5 * 4 * at.scores * at.head_size;
  const double bytes = kElement * at.tokens * (2 * at.queries + 2 * at.keys * layout.cp);
  LayerOp op;
  op.name = "attention";
  op.forward = {{Kernel::Kind::attention, flops, bytes, 1}};
  op.input_gradient = {{Kernel::Kind::attention, 2.5 * flops, 2 * bytes, 1}};
  op.kept_bytes = 4 * at.tokens * static_cast<double>(model.heads) / at.tensor;  // a row's sum, f32
  return op;
}

void attention(std::vector<LayerOp>& ops, const Sizes& at, const Model& model, const Layout& layout) {
  if (!model.learned_positions) {
    const double turned = 2 * kElement * at.tokens * (at.queries + at.keys);
    ops.push_back(pass("rotary positions", turned, turned, 0));
  }
  // Keys and values of all context ranks go round beside the attention of those that are there (Liu et al. 2023,
  // arXiv:2310.01889); backward they go round again and their gradients come back: twice the bytes.
  const double around = 2 * kElement * at.tokens * at.keys * layout.cp;
  if (layout.cp > 1) {
    ops.push_back(exchange("keys and values", GroupKind::context, Comm::all_gather, Comm::none, around));
    ops.back().beside = true;
  }
  if (layout.flash) {
    ops.push_back(flash_attention(at, model, layout));
  } else {
    attention_in_passes(ops, at);
  }
  if (layout.cp > 1) ops.back().regather = {Comm::all_gather, GroupKind::context, 2 * around};
}

// Of `tokens` tokens, in `count` equal parts (experts).
void mlp(std::vector<LayerOp>& ops, const Sizes& at, bool gated, double tokens, double count) {
  const double wide = kElement * tokens * at.ffn;
  ops.push_back(entered_product("mlp up", at, tokens / count, at.ffn * (gated ? 2 : 1), count));
  ops.push_back(gated ? pass("swiglu", 3 * wide, 5 * wide, 2 * wide) : pass("gelu", 2 * wide, 3 * wide, wide));
  ops.push_back(product("mlp down", at, tokens / count, at.hidden, at.ffn, count));
}

// Each token goes to `experts_a_token` experts, evenly (Lepikhin et al. 2020, arXiv:2006.16668; all-to-all before and
// after, forward and backward).
void mixture(std::vector<LayerOp>& ops, const Sizes& at, const Model& model, const Layout& layout) {
  const auto copies = static_cast<double>(model.experts_a_token);
  const double row_bytes = kElement * at.rows * at.hidden;
  const auto all_to_all = [&](std::string_view name) {
    if (layout.ep == 1) return;
    ops.push_back(exchange(name, GroupKind::expert, Comm::all_to_all, Comm::all_to_all, copies * row_bytes));
  };
  ops.push_back(product("router", at, at.rows, static_cast<double>(model.experts), at.hidden, 1));
  ops.push_back(pass("permute", (1 + copies) * row_bytes, (1 + copies) * row_bytes, 0));
  all_to_all("dispatch");
  enter(ops, at, copies * at.tokens);
  mlp(ops, at, model.gated, copies * at.tokens, static_cast<double>(model.experts) / layout.ep);
  leave(ops, at, copies * at.tokens);
  all_to_all("combine");
  ops.push_back(pass("unpermute", (1 + copies) * row_bytes, (1 + 2 * copies) * row_bytes, copies * row_bytes));
}

}  // namespace

double tokens_of(const Model& model, const Layout& layout) {
  return static_cast<double>(model.sequence) / layout.cp * static_cast<double>(layout.microbatch_size);
}

double input_bytes(const Model& model, const Layout& layout) {
  const Sizes at(model, layout);
  return kElement * at.rows * at.hidden;
}

double kept_bytes(const std::vector<LayerOp>& ops) {
  double bytes = 0;
  for (const LayerOp& op : ops) bytes += op.kept_bytes;
  return bytes;
}

std::vector<LayerOp> layer_ops(const Model& model, const Layout& layout) {
  const Sizes at(model, layout);
  std::vector<LayerOp> ops;
  ops.push_back(norm(at));
  enter(ops, at, at.tokens);
  LayerOp qkv = entered_product("queries, keys, values", at, at.tokens, at.queries + 2 * at.keys, 1);
  qkv.kept_bytes += kElement * at.tokens * (at.queries + 2 * at.keys);  // all three, for the backward of attention
  ops.push_back(qkv);
  attention(ops, at, model, layout);
  ops.push_back(product("projection", at, at.tokens, at.hidden, at.queries, 1));
  leave(ops, at, at.tokens);
  ops.push_back(residual(at));
  ops.push_back(norm(at));
  if (model.experts > 0) {
    mixture(ops, at, model, layout);
  } else {
    enter(ops, at, at.tokens);
    mlp(ops, at, model.gated, at.tokens, 1);
    leave(ops, at, at.tokens);
  }
  ops.push_back(residual(at));
  return ops;
}

std::vector<LayerOp> embedding_ops(const Model& model, const Layout& layout) {
  const Sizes at(model, layout);
  const double looked_up = kElement * at.tokens * at.hidden;
  std::vector<LayerOp> ops;
  LayerOp lookup = pass("lookup", 2 * looked_up, 0, 0);
  lookup.weight_gradient = {{Kernel::Kind::pass, 0, looked_up + 2 * at.grad_bytes * at.tokens * at.hidden, 1}};
  ops.push_back(lookup);
  leave(ops, at, at.tokens);
  const double elements = at.rows * at.hidden;
  if (model.learned_positions) ops.push_back(pass("positions", 3 * kElement * elements, kElement * elements, 0));
  if (model.dropout) ops.push_back(pass("dropout", 5 * elements, 5 * elements, elements));
  return ops;
}

std::vector<LayerOp> head_ops(const Model& model, const Layout& layout) {
  const Sizes at(model, layout);
  const double columns = static_cast<double>(words_a_rank(model, layout));
  std::vector<LayerOp> ops;
  ops.push_back(norm(at));
  enter(ops, at, at.tokens);
  ops.push_back(entered_product("logits", at, at.tokens, columns, 1));
  // Cross-entropy of logits in f32: cast, maximum, subtract, exponent, sum; backward scale and cast. Tensor ranks
  // exchange maximum, sum and the predicted logit of each token (1909.08053, section 3).
  const double logits = at.tokens * columns;
  ops.push_back(pass("cross-entropy", 30 * logits, 14 * logits, 4 * logits));
  if (at.tensor > 1) {
    for (const char* what : {"maximum", "predicted", "sum"}) {
      ops.push_back(exchange(what, GroupKind::tensor, Comm::all_reduce, Comm::none, 4 * at.tokens));
    }
  }
  return ops;
}

}  // namespace lockstep::simulator
