// The parts at the ends of the model, whose words tensor-parallel ranks share: the embedding, and the head with its
// loss.
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/residual/residual.h"
#include "parallel/layers/layers.h"
#include "parallel/parameters/device_memory.h"
#include "trainer/model/grid_run.h"
#include "trainer/model/part_run.h"
#include "workload/grid_product.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

// ---- the embedding

namespace {

// Part of a view, from an element on.
template <class View>
View part_of(View view, std::int64_t first, std::int64_t elems) {
  auto* const at = view.template as<std::byte>() + static_cast<std::int64_t>(core::size_of(view.dtype)) * first;
  return {at, view.dtype, elems};
}

class EmbeddingRun final : public PartRun {
 public:
  EmbeddingRun(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids, Boundary& out)
      : stage_(stage), indices_(stage.shape.model), ids_(ids), out_(out), gradients_(stage.store.gradients(part)) {}

  void run(workload::PieceName what, schedules::Op /*op*/) override {
    LOCKSTEP_CHECK(what.kind == Kind::embed, "a kernel of the embedding");
    if (what.side == workload::Side::forward) return embed(stage_.rows_of(what));
    what.turn == 2 ? add_table_gradient() : weight_gradient();
  }

  GptStage::Exchange exchange(workload::PieceName what) override {
    if (what.kind == Kind::embed) return exchange_table(what.side == workload::Side::forward);
    const parallel::RowTile rows = stage_.rows_of(what);
    return what.side == workload::Side::forward ? sum_.exchange(stage_, rows)
                                                : d_out_all_.exchange(stage_, out_.d, rows);
  }

  void exchanged(workload::PieceName what) override {
    if (what.kind == Kind::embed) return table_exchanged(what.side == workload::Side::forward);
    const parallel::RowTile rows = stage_.rows_of(what);
    if (what.side == workload::Side::forward) sum_.exchanged(stage_, rows);
    if (!rows.is_last()) return;
    if (what.side == workload::Side::forward) {
      out_.x = std::move(sum_.sum);
    } else {
      out_.d.reset();
    }
  }
  GptStage::BlockEnds ends_of(GptStage::Block /*block*/) override {
    return {.dy = &out_.d, .y = [this] { return out_.x.in(); }};
  }

 private:
  using Kind = workload::OperationKind;

  bool learns_positions() const { return stage_.shape.model.learned_positions; }
  // Index of this rank's words among the ranks that have others.
  std::int32_t words_index() const {
    const GptShape& shape = stage_.shape;
    if (!shape.layout.has_grid()) return shape.tensor.index;
    return place_of(shape.layout.grid, shape.tensor.index).along(axis_of_embedding(shape.layout.grid));
  }
  // On a grid one rank has the positions' gradient of all rows that ranks look up together; otherwise all have it.
  bool has_position_gradient() const {
    return learns_positions() && (!stage_.shape.layout.has_grid() || words_index() == 0);
  }

  // A layer for this number of tokens, and of tokens per sequence.
  parallel::EmbeddingLayer layer(std::int64_t tokens, std::int64_t length) const {
    const GptShape& shape = stage_.shape;
    return {
        .tokens = tokens,
        .length = has_position_gradient() ? length : 0,
        .hidden = shape.own_columns(),
        .words = parallel::words_of(shape.model.vocabulary, words_per_rank(shape.model, shape.layout), words_index())};
  }

  // ---- the table, on a grid with a depth: in three dimensions a panel of it is gathered, and its gradient scattered;
  // in two and a half the gradient is summed

  workload::GridLinear table() const { return grid_linear(stage_.shape.model, stage_.shape.layout, Kind::logits); }
  bool sums_table() const { return stage_.shape.layout.grid.depth > 1; }
  parallel::Tensor make_table(core::DType dtype, const workload::GridBlock& size) const {
    return stage_.workspace.memory.make(parallel::MemoryKind::buffers, dtype, size.elems());
  }
  GptStage::Exchange exchange_table(bool forward) {
    if (forward) {
      table_ = make_table(stage_.shape.layout.compute, panel_of(table(), workload::GridMatrix::w));
      return {stage_.store.weight(indices_.words), table_.out()};
    }
    if (table().transposed) return {d_table_.in(), d_table_.out()};
    d_own_table_ = make_table(core::DType::f32, block_of(table(), workload::GridMatrix::w, 0));
    return {d_table_.in(), d_own_table_.out()};
  }
  void table_exchanged(bool forward) {
    if (!forward && d_own_table_.given()) d_table_ = std::move(d_own_table_);
  }
  void add_table_gradient() {
    const kernels::InOut sum = gradients_.of(indices_.words);
    kernels::run(kernels::ResidualAdd{.count = sum.elems, .a = sum.in(), .b = d_table_.in(), .y = sum.out()},
                 stage_.workspace.where);
    d_table_.reset();
    std::move(gradients_).commit();
  }

  // Calls visit(layer, first token, first position) once for all tokens of a tile, whose rows are in tile order and
  // have no learned positions. On context ranks: once per run of tokens, because their positions are not consecutive.
  template <class Visit>
  void for_runs(const parallel::RowTile& rows, const Visit& visit) const {
    const GptShape& shape = stage_.shape;
    if (shape.layout.cp == 1 || !learns_positions()) {
      const std::int64_t tokens = shape.looked_up().count * shape.length() / rows.tiles;
      return visit(layer(tokens, shape.length()), rows.number * tokens, shape.first_token);
    }
    std::int64_t token = 0;
    for (std::int64_t sequence = 0; sequence < shape.layout.microbatch_size; ++sequence) {
      for (const std::int64_t position : shape.first_positions()) {
        visit(layer(shape.run_length(), shape.run_length()), token, position);
        token += shape.run_length();
      }
    }
  }

  void embed(const parallel::RowTile& rows) {
    const bool adds_positions = learns_positions() && words_index() == 0;
    const std::int64_t hidden = stage_.shape.own_columns();
    sum_.begin(stage_, rows);
    const kernels::Out y = sum_.term().out();
    for_runs(rows, [&](const parallel::EmbeddingLayer& run, std::int64_t token, std::int64_t position) {
      const kernels::In positions =
          adds_positions ? part_of(stage_.store.weight(indices_.positions), position * hidden, run.length * hidden)
                         : kernels::In{};
      run.forward(stage_.workspace, ids_.in(token, run.tokens),
                  table_.given() ? table_.in() : stage_.store.weight(indices_.words), positions,
                  part_of(y, token * hidden, run.tokens * hidden));
    });
    table_.reset();
    sum_.end(stage_, rows);
    if (stage_.shape.tensor.ranks == 1) out_.x = std::move(sum_.sum);
  }

  void weight_gradient() {
    const std::int64_t hidden = stage_.shape.own_columns();
    const kernels::In dy = d_out_all_.of(out_.d).in();
    if (sums_table()) {
      d_table_ = make_table(core::DType::f32, panel_of(table(), workload::GridMatrix::w));
      parallel::set_zero(stage_.workspace.memory.device(), stage_.workspace.where, d_table_.out());
    }
    const kernels::InOut words = sums_table() ? d_table_.inout() : gradients_.of(indices_.words);
    // All ranks have memory for it.
    const kernels::InOut d_positions = learns_positions() ? gradients_.of(indices_.positions) : kernels::InOut{};
    for_runs({}, [&](const parallel::EmbeddingLayer& run, std::int64_t token, std::int64_t position) {
      const kernels::InOut positions =
          has_position_gradient() ? part_of(d_positions, position * hidden, run.length * hidden) : kernels::InOut{};
      run.backward(stage_.workspace, ids_.in(token, run.tokens), part_of(dy, token * hidden, run.tokens * hidden),
                   words, positions);
    });
    d_out_all_.reset();
    out_.d.reset();
    if (!sums_table()) std::move(gradients_).commit();
  }

  const StageContext& stage_;
  workload::EmbeddingIndices indices_;
  const parallel::Tensor& ids_;
  Boundary& out_;
  PartGradients gradients_;
  RowSum sum_;
  RowGather d_out_all_;
  parallel::Tensor table_, d_table_, d_own_table_;
};

}  // namespace

std::unique_ptr<PartRun> make_embedding_run(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids,
                                            Boundary& out) {
  return std::make_unique<EmbeddingRun>(stage, part, ids, out);
}

// ---- the head

namespace {

using schedules::Op;
using workload::PieceName;
using workload::Side;
using Kind = workload::OperationKind;

class VocabularyHeadRun final : public HeadRun {
 public:
  VocabularyHeadRun(const StageContext& stage, std::int32_t part, std::size_t first, std::size_t words,
                    const parallel::Tensor& targets, Boundary& in)
      : stage_(stage),
        norm_index_(workload::HeadIndices(stage.shape.model).norm.behind(first)),
        words_(words),
        targets_(targets),
        in_(in),
        gradients_(stage.store.gradients(part)) {
    if (!stage.shape.layout.has_grid()) return;
    grid_.emplace(stage, Kind::logits, workload::WeightIndex{words}, gradients_,
                  GridEnds{&n_, &logits_, &logits_, &d_n_.sum});
  }

  const parallel::Tensor& losses() const override { return losses_; }
  const parallel::Tensor& logits() const override { return logits_; }

  void run(PieceName what, Op op) override {
    const bool forward = what.side == Side::forward;
    switch (what.kind) {
      case Kind::head_norm:
        return forward ? norm(what) : norm_backward(what, op);
      case Kind::logits:
        if (forward) return make_logits(what);
        return what.side == Side::input_gradient ? input_gradient(what) : weight_gradient(what, op);
      case Kind::exchange_stats:
        return make_stats();
      default:
        LOCKSTEP_CHECK(what.kind == Kind::loss, "a kernel of the head");
        loss();
    }
  }

  GptStage::Exchange exchange(PieceName what) override {
    if (what.kind == Kind::exchange_norm) return norm_run_.exchange();
    if (what.kind == Kind::exchange_stats) {
      all_stats_ = make_f32(layer().stats_elems() * layer().shards);
      return {stats_.in(), all_stats_.out()};
    }
    if (grid_) return grid_->exchange(what);
    return is_sum(what) ? d_n_.exchange(stage_) : n_all_.exchange(stage_, n_);
  }

  void exchanged(PieceName what) override {
    if (what.kind == Kind::exchange_norm) return;
    if (what.kind == Kind::exchange_stats) return stats_.reset();
    if (grid_) return grid_->exchanged(what);
    if (what.side == Side::regather) n_.reset();
    if (is_sum(what)) d_n_.exchanged(stage_);
  }

  std::vector<parallel::Tensor*> kept() override { return {&in_.x, &norm_.mean, &norm_.rstd, &n_, &logits_}; }
  GptStage::BlockEnds ends_of(GptStage::Block /*block*/) override {
    return {.x = &logits_, .y = [this] { return losses_.in(); }, .dx = &logits_};
  }

 private:
  static bool is_sum(PieceName what) { return what == PieceName{Kind::enter_head, Side::input_gradient}; }
  // On a grid the words are split like the columns within layers.
  parallel::HeadLayer layer() const {
    const GptShape& shape = stage_.shape;
    const bool on_grid = shape.layout.has_grid();
    const std::int64_t index =
        on_grid ? place_of(shape.layout.grid, shape.tensor.index).along(schedules::GroupKind::tensor_row)
                : shape.tensor.index;
    return {.rows = shape.layer_rows(),
            .hidden = shape.model.hidden,
            .words = parallel::words_of(shape.model.vocabulary, words_per_rank(shape.model, shape.layout), index),
            .shards = column_ranks(shape.layout)};
  }
  parallel::Tensor make_f32(std::int64_t elems) const {
    return stage_.workspace.memory.make(parallel::MemoryKind::buffers, core::DType::f32, elems);
  }
  bool trains() const { return stage_.mode == Mode::train; }

  void norm(PieceName what) {
    const parallel::NormLayer norm = norm_run_.begin(stage_, what);
    if (norm.is_last()) n_ = stage_.make_own_rows();
    norm.forward(stage_.workspace, stage_.norm_weights(norm_index_), in_.x.in(), norm_, n_.out());
    if (!norm_run_.ends(norm) || trains()) return;
    in_.x.reset();
    norm_.reset();
  }

  void make_logits(PieceName what) {
    const parallel::HeadLayer head = layer();
    if (grid_) {
      grid_->run(what);
      if (!grid_->is_last(what)) return;
    } else if (!logits_.given()) {  // GptStage::Block::loss has them
      logits_ = stage_.make(head.rows * head.words.rows);
      head.logits(stage_.workspace, stage_.store.weight(words_), n_all_.of(n_).in(), logits_.out());
    }
    n_all_.reset();
    if (!trains()) n_.reset();
    if (!grid_ && head.shards > 1) make_stats();
  }

  // A caller that only wants logits has no targets, but ranks communicate all the same.
  void make_stats() {
    const parallel::HeadLayer head = layer();
    if (stage_.mode == Mode::generate) {
      stats_ = parallel::make_zeroed(stage_.workspace.memory, stage_.workspace.where, parallel::MemoryKind::buffers,
                                     core::DType::f32, head.stats_elems());
    } else {
      stats_ = make_f32(head.stats_elems());
      head.stats(stage_.workspace, targets_.in(), logits_.in(), stats_.out());
    }
  }

  void loss() {
    if (stage_.mode != Mode::generate) {
      losses_ = make_f32(stage_.shape.layer_rows());
      layer().loss(stage_.workspace, targets_.in(), all_stats_.in(), stage_.gradient_scale, logits_.inout(),
                   losses_.out());
    }
    all_stats_.reset();
    if (stage_.mode == Mode::evaluate) logits_.reset();
  }

  void input_gradient(PieceName what) {
    if (grid_) return grid_->run(what);
    layer().input_gradient(stage_.workspace, stage_.store.weight(words_), logits_.in(), d_n_.begin(stage_));
    d_n_.end(stage_);
  }

  void weight_gradient(PieceName what, Op op) {
    if (grid_) {
      grid_->run(what);
      if (!grid_->is_last(what)) return;
    } else {
      layer().weight_gradient(stage_.workspace, n_all_.of(n_).in(), logits_.in(), gradients_.of(words_));
    }
    logits_.reset();
    n_.reset();
    n_all_.reset();
    if (op == Op::weight_gradient) complete();
  }

  void norm_backward(PieceName what, Op op) {
    const parallel::NormLayer norm = norm_run_.begin(stage_, what);
    norm.backward(
        stage_.workspace, stage_.store.weight(norm_index_.weight), in_.x.in(), norm_, d_n_.sum.inout(),
        norm.is_first() ? norm_gradients_.where(stage_, gradients_, op, norm_index_) : parallel::NormGradients{});
    if (!norm_run_.ends(norm)) return;
    in_.d = std::move(d_n_.sum);
    in_.x.reset();
    norm_.reset();
    if (op == Op::backward) complete();
  }

  void complete() {
    norm_gradients_.release(stage_, gradients_, norm_index_);
    std::move(gradients_).commit();
  }

  const StageContext& stage_;
  workload::WeightIndex norm_index_;
  std::size_t words_;
  const parallel::Tensor& targets_;
  Boundary& in_;
  PartGradients gradients_;

  std::optional<GridLinearRun> grid_;  // logits of ranks in a grid
  NormRun norm_run_;
  parallel::NormSaved norm_;
  parallel::Tensor n_;  // output of the norm
  RowGather n_all_;
  parallel::Tensor logits_;  // [rows, words of this rank]; later their gradient
  parallel::Tensor stats_;
  parallel::Tensor all_stats_;
  parallel::Tensor losses_;
  RowSum d_n_;
  HeldNormGradients norm_gradients_;
};

}  // namespace

std::unique_ptr<HeadRun> make_head_run(const StageContext& stage, std::int32_t part, std::size_t first,
                                       std::size_t words, const parallel::Tensor& targets, Boundary& in) {
  return std::make_unique<VocabularyHeadRun>(stage, part, first, words, targets, in);
}

}  // namespace lockstep::trainer
