// Embedding and cross-entropy over a vocabulary that ranks share out, padded where they do not divide it.
#include <cmath>

#include "bench/parallel_layers/nodes.h"
#include "bench/parallel_layers/values.h"
#include "parallel/layers/vocabulary.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::layer_bench {
namespace {

using parallel::MemoryKind;
using parallel::Tensor;

workload::Parameter table_of(const Place& place, float deviation) {
  return {.name = "table",
          .shape = {place.shape.vocabulary, place.shape.hidden},
          .split = workload::Split::rows,
          .deviation = deviation};
}

parallel::Words words_of(const Place& place) {
  const std::int64_t rows = (place.shape.vocabulary + place.sharing.ranks - 1) / place.sharing.ranks;
  return parallel::words_of(place.shape.vocabulary, rows, place.sharing.index);
}

// Words alone: positions are added where nothing is shared out.
class Embedding final : public Node {
 public:
  Embedding(const Place& place, const workload::Operation& op, Value& out)
      : place_(place),
        op_(op),
        out_(out),
        ids_(ids_of(memory(), ids())),
        ids_in_tiles_(ids_of(memory(), ids_in_tiles())),
        table_(place.random(table_of(place, 1))),
        d_table_(place.make_f32(MemoryKind::gradients, table_.elems())),
        d_positions_(place.make_f32(MemoryKind::gradients, place.shape.length * place.shape.hidden)) {}

  void forward(const Tile& tile) override {
    auto call = std::get<kernels::EmbeddingForward>(op_.forward[0].arguments);
    call.tokens = tile.rows;
    call.length = 0;
    call.first_id = words_of(place_).first;
    call.ids = ids_in_tiles_.in(tile.first, tile.rows);
    call.table = table_.in();
    call.y = out_.x_out(tile);
    kernels::run(call, place_.workspace.where);
  }
  // The output's gradient has been gathered whole: its rows lie in their own order.
  void weight_gradient() override {
    auto call = std::get<kernels::EmbeddingBackward>(op_.weight_gradient[0].arguments);
    call.first_id = words_of(place_).first;
    call.ids = ids_.in();
    call.dy = out_.d.in();
    call.dtable = d_table_.inout();
    call.dpositions = d_positions_.inout();
    kernels::run(call, place_.workspace.where);
  }
  void reset() const override {
    for (const Tensor* sum : {&d_table_, &d_positions_}) set_bytes(memory(), *sum, 0);
  }
  void add_results(std::vector<Result>& results) const override {
    results.push_back({table_of(place_, 1), &d_table_});
    results.push_back({{.name = "positions", .shape = {place_.shape.length, place_.shape.hidden}}, &d_positions_});
  }

 private:
  parallel::Memory& memory() const { return place_.workspace.memory; }
  std::vector<std::int32_t> ids() const { return random_ids(place_.shape.rows(), place_.shape.vocabulary); }
  std::vector<std::int32_t> ids_in_tiles() const {
    const std::vector<std::int32_t> all = ids();
    std::vector<std::int32_t> ids = place_.tiles().order();
    for (std::int32_t& id : ids) id = all[static_cast<std::size_t>(id)];
    return ids;
  }

  const Place& place_;
  const workload::Operation& op_;
  Value& out_;
  Tensor ids_, ids_in_tiles_, table_, d_table_, d_positions_;
};

class Statistics final : public Node {
 public:
  Statistics(const Place& place, const workload::Operation& op, const Logits& logits, Value& out)
      : place_(place), op_(op), logits_(logits), out_(out) {}

  void forward(const Tile& /*all*/) override {
    auto call = std::get<kernels::CrossEntropyStats>(op_.forward[0].arguments);
    call.valid_columns = logits_.valid;
    call.first_id = logits_.first;
    call.targets = logits_.targets.in();
    call.logits = logits_.now.in();
    call.stats = out_.x.out();
    kernels::run(call, place_.workspace.where);
  }

 private:
  const Place& place_;
  const workload::Operation& op_;
  const Logits& logits_;
  Value& out_;
};

class Loss final : public Node {
 public:
  Loss(const Place& place, const workload::Operation& op, const Logits& logits, const Value* statistics)
      : place_(place),
        op_(op),
        logits_(logits),
        statistics_(statistics),
        losses_(place.make_f32(MemoryKind::activations, place.shape.rows())) {}

  void forward(const Tile& /*all*/) override {
    if (statistics_ == nullptr) return run(std::get<kernels::CrossEntropy>(op_.forward[0].arguments));
    auto call = std::get<kernels::CrossEntropyFinish>(op_.forward[0].arguments);
    call.first_id = logits_.first;
    call.stats = statistics_->x.in();
    run(call);
  }
  void reset() const override {
    spoil(place_, {&losses_});
    logits_.reset(place_);
  }
  void add_results(std::vector<Result>& results) const override {
    const std::int64_t vocabulary = place_.shape.vocabulary;
    const std::int64_t rows = place_.shape.rows();
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
    kernels::run(call, place_.workspace.where);
  }

  const Place& place_;
  const workload::Operation& op_;
  const Logits& logits_;
  const Value* const statistics_;
  Tensor losses_;
};

}  // namespace

Logits::Logits(const Place& place)
    : words(words_of(place).rows),
      valid(words_of(place).valid),
      first(words_of(place).first),
      targets(ids_of(place.workspace.memory, random_ids(place.shape.rows(), place.shape.vocabulary))),
      now(place.make(place.shape.rows() * words)),
      product(static_cast<std::size_t>(now.bytes())) {
  const std::int64_t rows = place.shape.rows();
  const std::int64_t hidden = place.shape.hidden;
  const Tensor table = place.random(table_of(place, 1 / std::sqrt(static_cast<float>(hidden))));
  const Tensor x = place.random({.name = "x", .shape = {rows, hidden}, .deviation = 1});
  parallel::HeadLayer{rows, hidden, words_of(place), place.sharing.ranks}.logits(place.workspace, table.in(), x.in(),
                                                                                 now.out());
  parallel::finish(place.workspace.where);
  place.workspace.memory.device().copy_to_host(product.data(), now.data(), product.size());
}

void Logits::reset(const Place& place) const {
  place.workspace.memory.device().copy_to_device(now.data(), product.data(), product.size());
}

std::unique_ptr<Node> make_embedding(const Place& place, const workload::Operation& op, Value& out) {
  return std::make_unique<Embedding>(place, op, out);
}

std::unique_ptr<Node> make_statistics(const Place& place, const workload::Operation& op, const Logits& logits,
                                      Value& out) {
  return std::make_unique<Statistics>(place, op, logits, out);
}

std::unique_ptr<Node> make_loss(const Place& place, const workload::Operation& op, const Logits& logits,
                                const Value* statistics) {
  return std::make_unique<Loss>(place, op, logits, statistics);
}

}  // namespace lockstep::layer_bench
