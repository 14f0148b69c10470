// Embedding and cross-entropy over a vocabulary that ranks share out, padded where they do not divide it.
#include <cmath>

#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/values.h"
#include "parallel/layers/vocabulary.h"

namespace lockstep::layer_bench {
namespace {

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

class EmbeddingBlock final : public Block {
 public:
  explicit EmbeddingBlock(const Place& place)
      : place_(place),
        exit_(place),
        ids_(ids_of(memory(), ids())),
        ids_in_tiles_(ids_of(memory(), ids_in_tiles())),
        table_(place.random(table_of(place, 1))),
        d_table_(gradients(table_.elems())),
        d_positions_(gradients(place.shape.length * place.shape.hidden)) {
    for (const Tile& tile : place_.tiles().all()) {
      exit_.add_sum(forward_, tile, forward_.add(TaskKind::other_kernel, [this, tile] { forward(tile); }));
    }
    const int gathered = exit_.add_whole_gather(backward_);
    backward_.add(
        TaskKind::other_kernel, [this] { backward(); }, gathered);
  }

  void reset() override {
    exit_.spoil();
    set_bytes(memory(), d_table_, 0);
    set_bytes(memory(), d_positions_, 0);
  }
  std::vector<Result> results() const override {
    return {exit_.result(),
            {table_of(place_, 1), &d_table_},
            {{.name = "positions", .shape = {place_.shape.length, place_.shape.hidden}}, &d_positions_}};
  }

 private:
  parallel::Memory& memory() const { return place_.workspace.memory; }
  Tensor gradients(std::int64_t elems) const {
    return memory().make(parallel::MemoryKind::gradients, core::DType::f32, elems);
  }
  std::vector<std::int32_t> ids() const { return random_ids(place_.shape.rows(), place_.shape.vocabulary); }
  std::vector<std::int32_t> ids_in_tiles() const {
    const std::vector<std::int32_t> all = ids();
    std::vector<std::int32_t> ids = place_.tiles().order();
    for (std::int32_t& id : ids) id = all[static_cast<std::size_t>(id)];
    return ids;
  }
  void forward(const Tile& tile) const {
    layer(tile.rows).forward(place_.workspace, ids_in_tiles_.in(tile.first, tile.rows), table_.in(), {},
                             exit_.terms(tile));
  }
  void backward() const {
    const Tile whole = place_.tiles().whole();
    layer(whole.rows).backward(place_.workspace, ids_.in(), exit_.dy(whole), d_table_.inout(), d_positions_.inout());
  }
  parallel::EmbeddingLayer layer(std::int64_t tokens) const {
    return {tokens, place_.shape.length, place_.shape.hidden, words_of(place_)};
  }

  Place place_;
  Exit exit_;
  Tensor ids_, ids_in_tiles_, table_, d_table_, d_positions_;
};

// Of logits that are there: their product is a column-parallel layer.
class CrossEntropyBlock final : public Block {
 public:
  explicit CrossEntropyBlock(const Place& place)
      : place_(place),
        layer_{place.shape.rows(), place.shape.hidden, words_of(place), place.sharing.ranks},
        targets_(ids_of(memory(), random_ids(layer_.rows, place.shape.vocabulary))),
        product_(make_logits()),
        logits_(place.make(product_.elems())),
        own_stats_(memory().make(parallel::MemoryKind::buffers, core::DType::f32, layer_.stats_elems())),
        stats_(memory().make(parallel::MemoryKind::buffers, core::DType::f32, layer_.stats_elems() * layer_.shards)),
        losses_(memory().make(parallel::MemoryKind::activations, core::DType::f32, layer_.rows)) {
    int gathered = kNothing;
    if (place.exchanger != nullptr) {
      const int own = forward_.add(TaskKind::other_kernel, [this] {
        layer_.stats(place_.workspace, targets_.in(), logits_.in(), own_stats_.out());
      });
      gathered = forward_.add(TaskKind::exchange, place.exchanger->all_gather(own_stats_.in(), stats_.out()), own);
    }
    forward_.add(
        TaskKind::other_kernel,
        [this] {
          layer_.loss(place_.workspace, targets_.in(), layer_.shards > 1 ? stats_.in() : kernels::In{}, 1,
                      logits_.inout(), losses_.out());
        },
        gathered);
  }

  void reset() override {
    for (const Tensor* one : {&own_stats_, &stats_, &losses_}) set_bytes(memory(), *one, 0xff);
    memory().device().copy_to_device(logits_.data(), product_.data(), static_cast<std::size_t>(logits_.bytes()));
  }
  std::vector<Result> results() const override {
    const parallel::Words words = layer_.words;
    const std::int64_t vocabulary = place_.shape.vocabulary;
    const std::int64_t rows = layer_.rows;
    const auto runs = [words, vocabulary,
                       rows](const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
      for (std::int64_t r = 0; r < rows && words.valid > 0; ++r) {
        visit(r * words.rows, r * vocabulary + words.first, words.valid);
      }
    };
    return {{{.name = "losses", .shape = {rows}}, &losses_},
            {{.name = "d_logits", .shape = {rows, vocabulary}}, &logits_, true, runs}};
  }

 private:
  parallel::Memory& memory() const { return place_.workspace.memory; }
  Tensor make_logits() const {
    const Tensor table = place_.random(table_of(place_, 1 / std::sqrt(static_cast<float>(layer_.hidden))));
    const Tensor x = place_.random({.name = "x", .shape = {layer_.rows, layer_.hidden}, .deviation = 1});
    Tensor logits = place_.make(layer_.rows * layer_.words.rows);
    layer_.logits(place_.workspace, table.in(), x.in(), logits.out());
    return logits;
  }

  Place place_;
  parallel::HeadLayer layer_;
  Tensor targets_, product_, logits_, own_stats_, stats_, losses_;
};

}  // namespace

std::unique_ptr<Block> make_embedding_block(const Place& place) {
  return std::make_unique<EmbeddingBlock>(place);
}

std::unique_ptr<Block> make_cross_entropy_block(const Place& place) {
  return std::make_unique<CrossEntropyBlock>(place);
}

}  // namespace lockstep::layer_bench
