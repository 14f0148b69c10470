#include <utility>

#include "core/error.h"
#include "parallel/layers/vocabulary.h"
#include "trainer/model/part_run.h"
#include "trainer/model/shared_rows.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
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
      : stage_(stage), places_(stage.shape.model), ids_(ids), out_(out), gradients_(stage.store.gradients(part)) {}

  void run(workload::PieceName what, schedules::Op /*op*/) override {
    LOCKSTEP_CHECK(what.kind == workload::OperationKind::embed, "a kernel of the embedding");
    if (what.side == workload::Side::forward) return embed();
    weight_gradient();
  }

  GptStage::Exchange exchange(workload::PieceName what) override {
    return what.side == workload::Side::forward ? sum_.exchange(stage_) : d_out_all_.exchange(stage_, out_.d);
  }

  void exchanged(workload::PieceName what) override {
    if (what.side != workload::Side::forward) return out_.d.reset();
    sum_.exchanged(stage_);
    out_.x = std::move(sum_.sum);
  }

 private:
  bool learns_positions() const { return stage_.shape.model.learned_positions; }

  // A layer for this number of tokens, and of tokens per sequence.
  parallel::EmbeddingLayer layer(std::int64_t tokens, std::int64_t length) const {
    const GptShape& shape = stage_.shape;
    const std::int64_t rows = shape_of_share(stage_.store.parameters()[places_.words], shape.tensor.ranks).front();
    return {.tokens = tokens,
            .length = learns_positions() ? length : 0,
            .hidden = shape.model.hidden,
            .words = parallel::words_of(shape.model.vocabulary, rows, shape.tensor.index)};
  }

  // Calls visit(layer, first token, first position) once for all tokens. On context ranks: once per run of tokens,
  // because their positions differ from their index.
  template <class Visit>
  void for_runs(const Visit& visit) const {
    const GptShape& shape = stage_.shape;
    if (shape.layout.cp == 1 || !learns_positions()) return visit(layer(shape.rows(), shape.length()), 0, 0);
    std::int64_t token = 0;
    for (std::int64_t sequence = 0; sequence < shape.layout.microbatch_size; ++sequence) {
      for (const std::int64_t position : shape.first_positions()) {
        visit(layer(shape.run_length(), shape.run_length()), token, position);
        token += shape.run_length();
      }
    }
  }

  void embed() {
    const bool adds_positions = learns_positions() && stage_.shape.tensor.index == 0;
    const std::int64_t hidden = stage_.shape.model.hidden;
    const kernels::Out y = sum_.begin(stage_);
    for_runs([&](const parallel::EmbeddingLayer& run, std::int64_t token, std::int64_t position) {
      const kernels::In positions =
          adds_positions ? part_of(stage_.store.weight(places_.positions), position * hidden, run.length * hidden)
                         : kernels::In{};
      run.forward(stage_.workspace, ids_.in(token, run.tokens), stage_.store.weight(places_.words), positions,
                  part_of(y, token * hidden, run.tokens * hidden));
    });
    sum_.end(stage_);
    out_.x = std::move(sum_.sum);
  }

  void weight_gradient() {
    const std::int64_t hidden = stage_.shape.model.hidden;
    const kernels::In dy = d_out_all_.of(out_.d).in();
    for_runs([&](const parallel::EmbeddingLayer& run, std::int64_t token, std::int64_t position) {
      const kernels::InOut positions =
          learns_positions() ? part_of(gradients_.of(places_.positions), position * hidden, run.length * hidden)
                             : kernels::InOut{};
      run.backward(stage_.workspace, ids_.in(token, run.tokens), part_of(dy, token * hidden, run.tokens * hidden),
                   gradients_.of(places_.words), positions);
    });
    d_out_all_.reset();
    out_.d.reset();
    std::move(gradients_).commit();
  }

  const StageContext& stage_;
  workload::EmbeddingPlaces places_;
  const parallel::Tensor& ids_;
  Boundary& out_;
  PartGradients gradients_;
  RowSum sum_;
  RowGather d_out_all_;
};

}  // namespace

std::unique_ptr<PartRun> make_embedding_run(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids,
                                            Boundary& out) {
  return std::make_unique<EmbeddingRun>(stage, part, ids, out);
}

}  // namespace lockstep::trainer
