#include "bench/tp_linear_bench/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/random.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm.h"
#include "parallel/layers/layers.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store.h"

namespace lockstep::tp_linear {
namespace {

std::size_t size_of(const parallel::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.bytes());
}

}  // namespace

parallel::Tensor random_share(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                              workload::TensorRank place) {
  return random_runs(memory, dtype, whole, workload::elems_of_share(whole, place.ranks),
                     [&](const auto& visit) { workload::for_each_run(whole, place, visit); });
}

parallel::Tensor random_runs(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                             std::int64_t elems, const Runs& runs) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  runs([&](std::int64_t to, std::int64_t from, std::int64_t count) {
    const std::span all(values);
    parallel::fill_initial_values(whole, kSeed, from,
                                  all.subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(count)));
  });
  parallel::Tensor made =
      memory.make(parallel::MemoryKind::activations, dtype, static_cast<std::int64_t>(values.size()));
  parallel::write_rounded(memory.device(), made.out(), values);
  return made;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(core::hash64(kSeed, 0, i) % static_cast<std::uint64_t>(below));
  }
  return ids;
}

parallel::Tensor ids_of(parallel::Memory& memory, const std::vector<std::int32_t>& ids) {
  parallel::Tensor made =
      memory.make(parallel::MemoryKind::buffers, core::DType::i32, static_cast<std::int64_t>(ids.size()));
  memory.device().copy_to_device(made.data(), ids.data(), size_of(made));
  return made;
}

void set_bytes(parallel::Memory& memory, const parallel::Tensor& tensor, unsigned char byte) {
  const std::vector<unsigned char> bytes(size_of(tensor), byte);
  memory.device().copy_to_device(tensor.data(), bytes.data(), bytes.size());
}

namespace {

using parallel::MemoryKind;
using parallel::Tensor;

// The calls of its operation on the rows of a tile.
class Product final : public Node {
 public:
  Product(const NodeContext& context, const workload::Operation& op, Value& in, Value& out)
      : context_(context),
        op_(op),
        in_(in),
        out_(out),
        whole_(parameters_of(op.kind, context.shape)),
        adds_bias_(whole_.weight.split == workload::Split::rows || context.sharing.index == 0),
        weight_(context.random(whole_.weight)),
        bias_(context.random(whole_.bias)),
        d_weight_(context.make_f32(MemoryKind::gradients, weight_.elems())),
        d_bias_(context.make_f32(MemoryKind::gradients, bias_.elems())) {}

  void forward(const Tile& tile) override {
    auto call = std::get<kernels::GemmForward>(op_.forward[0].arguments);
    call.shape.rows = tile.rows;
    if (!adds_bias_) call.epilogue = kernels::Epilogue::none;
    call.x = in_.x_in(tile);
    call.w = weight_.in();
    call.bias = adds_bias_ ? bias_.in() : kernels::In{};
    call.pre = out_.pre.given() ? out_.pre.out(tile.first * out_.columns, tile.rows * out_.columns) : kernels::Out{};
    call.y = out_.x_out(tile);
    kernels::run(call, context_.workspace.where);
  }

  void input_gradient(const Tile& tile) override {
    auto call = std::get<kernels::GemmInputGradient>(op_.input_gradient[0].arguments);
    call.shape.rows = tile.rows;
    call.dy = out_.d_in(tile);
    call.w = weight_.in();
    call.pre = in_.pre.given() ? in_.pre.in(tile.first * in_.columns, tile.rows * in_.columns) : kernels::In{};
    call.dx = in_.d_out(tile);
    kernels::run(call, context_.workspace.where);
  }

  void weight_gradient() override {
    auto call = std::get<kernels::GemmWeightGradient>(op_.weight_gradient[0].arguments);
    call.x = (in_.again.given() ? in_.again : in_.x).in();
    call.dy = out_.d.in();
    call.dw = d_weight_.inout();
    call.dbias = d_bias_.inout();
    kernels::run(call, context_.workspace.where);
  }

  void reset() const override {
    for (const parallel::Tensor* sum : {&d_weight_, &d_bias_}) set_bytes(context_.workspace.memory, *sum, 0);
  }
  void add_results(std::vector<Result>& results) const override {
    results.push_back({whole_.weight, &d_weight_});
    results.push_back({whole_.bias, &d_bias_});
  }

 private:
  const NodeContext& context_;
  const workload::Operation& op_;
  Value& in_;
  Value& out_;
  const LinearParameters whole_;
  const bool adds_bias_;  // if outputs are terms of a sum, one rank adds the bias
  parallel::Tensor weight_, bias_, d_weight_, d_bias_;
};

}  // namespace

std::unique_ptr<Node> make_product(const NodeContext& context, const workload::Operation& op, Value& in, Value& out) {
  return std::make_unique<Product>(context, op, in, out);
}

parallel::Tensor NodeContext::make(std::int64_t elems) const {
  return workspace.memory.make(MemoryKind::activations, shape.dtype, elems);
}

parallel::Tensor NodeContext::make_f32(MemoryKind kind, std::int64_t elems) const {
  return workspace.memory.make(kind, core::DType::f32, elems);
}

parallel::Tensor NodeContext::random(const workload::Parameter& whole) const {
  return random_share(workspace.memory, shape.dtype, whole, tensor());
}

parallel::Tensor NodeContext::random_in_tiles(const workload::Parameter& whole) const {
  parallel::Tensor rows = random(whole);
  if (!tiles().reorders()) return rows;
  parallel::Tensor in_tiles = make(rows.elems());
  RowOrder(workspace, tiles()).into_tiles(rows.in(), in_tiles.out());
  parallel::finish(workspace.where);  // frees the order
  return in_tiles;
}

void spoil(const NodeContext& context, std::initializer_list<const parallel::Tensor*> tensors) {
  for (const parallel::Tensor* tensor : tensors) {
    if (tensor->given()) set_bytes(context.workspace.memory, *tensor, kSpoilt);
  }
}

// The attention core runs over whole sequences: it needs all rows, in their order.
namespace {

class AttentionCore final : public Node {
 public:
  AttentionCore(const NodeContext& context, const workload::Operation& op, Value& in, Value& out)
      : context_(context),
        op_(op),
        in_(in),
        out_(out),
        lse_(context.make_f32(parallel::MemoryKind::activations, context.shape.rows() * shape().heads)) {
    if (!context.tiles().reorders()) return;
    order_.emplace(context.workspace, context.tiles());
    rows_.qkv = context.make(in.x.elems());
    rows_.o = context.make(out.x.elems());
    rows_.d_o = context.make(out.x.elems());
    rows_.d_qkv = context.make(in.x.elems());
  }

  void forward(const Tile& /*all*/) override {
    if (order_) order_->out_of_tiles(in_.x.in(), rows_.qkv.out());
    auto call = std::get<kernels::AttentionForward>(op_.forward[0].arguments);
    call.q = part_of_qkv(0);
    call.k = part_of_qkv(1);
    call.v = part_of_qkv(2);
    call.o = o().out();
    call.lse = lse_.out();
    kernels::run(call, context_.workspace.where);
    if (order_) order_->into_tiles(rows_.o.in(), out_.x.out());
  }

  void input_gradient(const Tile& /*all*/) override {
    if (order_) order_->out_of_tiles(out_.d.in(), rows_.d_o.out());
    auto call = std::get<kernels::AttentionBackward>(op_.input_gradient[0].arguments);
    call.q = part_of_qkv(0);
    call.k = part_of_qkv(1);
    call.v = part_of_qkv(2);
    call.o = o().in();
    call.lse = lse_.in();
    call.d_o = (order_ ? rows_.d_o : out_.d).in();
    call.dq = part_of_gradient(0);
    call.dk = part_of_gradient(1);
    call.dv = part_of_gradient(2);
    kernels::run(call, context_.workspace.where);
    if (order_) order_->into_tiles(rows_.d_qkv.in(), in_.d.out());
  }

  void reset() const override { spoil(context_, {&lse_, &rows_.qkv, &rows_.o, &rows_.d_o, &rows_.d_qkv}); }

 private:
  const kernels::AttentionShape& shape() const {
    return std::get<kernels::AttentionForward>(op_.forward[0].arguments).shape;
  }
  const Tensor& o() const { return order_ ? rows_.o : out_.x; }
  // Queries, keys and values of a token are contiguous.
  kernels::In part_of_qkv(std::int64_t part) const {
    return (order_ ? rows_.qkv : in_.x).in(part * shape().row(), shape().extent());
  }
  kernels::Out part_of_gradient(std::int64_t part) const {
    return (order_ ? rows_.d_qkv : in_.d).out(part * shape().row(), shape().extent());
  }

  const NodeContext& context_;
  const workload::Operation& op_;
  Value& in_;
  Value& out_;
  Tensor lse_;
  std::optional<RowOrder> order_;
  struct InOrder {
    Tensor qkv, o, d_o, d_qkv;
  } rows_;  // used if tiles reorder rows
};

}  // namespace

std::unique_ptr<Node> make_attention_core(const NodeContext& context, const workload::Operation& op, Value& in,
                                          Value& out) {
  return std::make_unique<AttentionCore>(context, op, in, out);
}

// Embedding and cross-entropy over a sharded vocabulary, padded if the ranks do not divide it.
namespace {

workload::Parameter table_of(const NodeContext& context, float deviation) {
  return {.name = "table",
          .shape = {context.shape.vocabulary, context.shape.hidden},
          .split = workload::Split::rows,
          .deviation = deviation};
}

parallel::Words words_of(const NodeContext& context) {
  const std::int64_t rows = (context.shape.vocabulary + context.sharing.ranks - 1) / context.sharing.ranks;
  return parallel::words_of(context.shape.vocabulary, rows, context.sharing.index);
}

// Only words: positions are added where nothing is sharded.
class Embedding final : public Node {
 public:
  Embedding(const NodeContext& context, const workload::Operation& op, Value& out)
      : context_(context),
        op_(op),
        out_(out),
        ids_(ids_of(memory(), ids())),
        ids_in_tiles_(ids_of(memory(), ids_in_tiles())),
        table_(context.random(table_of(context, 1))),
        d_table_(context.make_f32(MemoryKind::gradients, table_.elems())),
        d_positions_(context.make_f32(MemoryKind::gradients, context.shape.length * context.shape.hidden)) {}

  void forward(const Tile& tile) override {
    auto call = std::get<kernels::EmbeddingForward>(op_.forward[0].arguments);
    call.tokens = tile.rows;
    call.length = 0;
    call.first_id = words_of(context_).first;
    call.ids = ids_in_tiles_.in(tile.first, tile.rows);
    call.table = table_.in();
    call.y = out_.x_out(tile);
    kernels::run(call, context_.workspace.where);
  }
  // The output's gradient has been gathered: its rows are in row order.
  void weight_gradient() override {
    auto call = std::get<kernels::EmbeddingBackward>(op_.weight_gradient[0].arguments);
    call.first_id = words_of(context_).first;
    call.ids = ids_.in();
    call.dy = out_.d.in();
    call.dtable = d_table_.inout();
    call.dpositions = d_positions_.inout();
    kernels::run(call, context_.workspace.where);
  }
  void reset() const override {
    for (const Tensor* sum : {&d_table_, &d_positions_}) set_bytes(memory(), *sum, 0);
  }
  void add_results(std::vector<Result>& results) const override {
    results.push_back({table_of(context_, 1), &d_table_});
    results.push_back({{.name = "positions", .shape = {context_.shape.length, context_.shape.hidden}}, &d_positions_});
  }

 private:
  parallel::Memory& memory() const { return context_.workspace.memory; }
  std::vector<std::int32_t> ids() const { return random_ids(context_.shape.rows(), context_.shape.vocabulary); }
  std::vector<std::int32_t> ids_in_tiles() const {
    const std::vector<std::int32_t> all = ids();
    std::vector<std::int32_t> ids = context_.tiles().order();
    for (std::int32_t& id : ids) id = all[static_cast<std::size_t>(id)];
    return ids;
  }

  const NodeContext& context_;
  const workload::Operation& op_;
  Value& out_;
  Tensor ids_, ids_in_tiles_, table_, d_table_, d_positions_;
};

class Statistics final : public Node {
 public:
  Statistics(const NodeContext& context, const workload::Operation& op, const Logits& logits, Value& out)
      : context_(context), op_(op), logits_(logits), out_(out) {}

  void forward(const Tile& /*all*/) override {
    auto call = std::get<kernels::CrossEntropyStats>(op_.forward[0].arguments);
    call.valid_columns = logits_.valid;
    call.first_id = logits_.first;
    call.targets = logits_.targets.in();
    call.logits = logits_.now.in();
    call.stats = out_.x.out();
    kernels::run(call, context_.workspace.where);
  }

 private:
  const NodeContext& context_;
  const workload::Operation& op_;
  const Logits& logits_;
  Value& out_;
};

class Loss final : public Node {
 public:
  Loss(const NodeContext& context, const workload::Operation& op, const Logits& logits, const Value* statistics)
      : context_(context),
        op_(op),
        logits_(logits),
        statistics_(statistics),
        losses_(context.make_f32(MemoryKind::activations, context.shape.rows())) {}

  void forward(const Tile& /*all*/) override {
    if (statistics_ == nullptr) return run(std::get<kernels::CrossEntropy>(op_.forward[0].arguments));
    auto call = std::get<kernels::CrossEntropyFinish>(op_.forward[0].arguments);
    call.first_id = logits_.first;
    call.stats = statistics_->x.in();
    run(call);
  }
  void reset() const override {
    spoil(context_, {&losses_});
    logits_.reset(context_);
  }
  void add_results(std::vector<Result>& results) const override {
    const std::int64_t vocabulary = context_.shape.vocabulary;
    const std::int64_t rows = context_.shape.rows();
    const auto runs = [this, vocabulary,
                       rows](const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
      for (std::int64_t r = 0; r < rows && logits_.valid > 0; ++r) {
        visit(r * logits_.words, r * vocabulary + logits_.first, logits_.valid);
      }
    };
    results.push_back({{.name = "losses", .shape = {rows}}, &losses_});
    results.push_back({{.name = "d_logits", .shape = {rows, vocabulary}}, &logits_.now, true, runs});
  }

 private:
  template <class Call>
  void run(Call call) const {
    call.valid_columns = logits_.valid;
    call.targets = logits_.targets.in();
    call.logits = logits_.now.inout();
    call.losses = losses_.out();
    kernels::run(call, context_.workspace.where);
  }

  const NodeContext& context_;
  const workload::Operation& op_;
  const Logits& logits_;
  const Value* const statistics_;
  Tensor losses_;
};

}  // namespace

Logits::Logits(const NodeContext& context)
    : words(words_of(context).rows),
      valid(words_of(context).valid),
      first(words_of(context).first),
      targets(ids_of(context.workspace.memory, random_ids(context.shape.rows(), context.shape.vocabulary))),
      now(context.make(context.shape.rows() * words)),
      product(static_cast<std::size_t>(now.bytes())) {
  const std::int64_t rows = context.shape.rows();
  const std::int64_t hidden = context.shape.hidden;
  const Tensor table = context.random(table_of(context, 1 / std::sqrt(static_cast<float>(hidden))));
  const Tensor x = context.random({.name = "x", .shape = {rows, hidden}, .deviation = 1});
  parallel::HeadLayer{rows, hidden, words_of(context), context.sharing.ranks}.logits(context.workspace, table.in(),
                                                                                     x.in(), now.out());
  parallel::finish(context.workspace.where);
  context.workspace.memory.device().copy_to_host(product.data(), now.data(), product.size());
}

void Logits::reset(const NodeContext& context) const {
  context.workspace.memory.device().copy_to_device(now.data(), product.data(), product.size());
}

std::unique_ptr<Node> make_embedding(const NodeContext& context, const workload::Operation& op, Value& out) {
  return std::make_unique<Embedding>(context, op, out);
}

std::unique_ptr<Node> make_statistics(const NodeContext& context, const workload::Operation& op, const Logits& logits,
                                      Value& out) {
  return std::make_unique<Statistics>(context, op, logits, out);
}

std::unique_ptr<Node> make_loss(const NodeContext& context, const workload::Operation& op, const Logits& logits,
                                const Value* statistics) {
  return std::make_unique<Loss>(context, op, logits, statistics);
}

}  // namespace lockstep::tp_linear
