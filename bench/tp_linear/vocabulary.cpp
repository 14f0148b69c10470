// Embedding and cross-entropy over a sharded vocabulary, padded if the ranks do not divide it.
#include <cmath>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/values.h"
#include "parallel/layers/vocabulary.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::tp_linear {
namespace {

using parallel::MemoryKind;
using parallel::Tensor;

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
