#include <utility>

#include "core/error.h"
#include "parallel/layers/vocabulary.h"
#include "trainer/model/part_run.h"
#include "trainer/model/shared_rows.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
namespace {

// The rows that the sequences have of a table of more positions.
template <class View>
View first_elems(View view, std::int64_t elems) {
  view.elems = elems;
  return view;
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
  std::int64_t position_elems() const { return stage_.shape.model.sequence * stage_.shape.model.hidden; }

  parallel::EmbeddingLayer layer() const {
    const GptShape& shape = stage_.shape;
    const std::int64_t rows = shape_of_share(stage_.store.parameters()[places_.words], shape.tensor.ranks).front();
    return {.tokens = shape.rows(),
            .length = learns_positions() ? shape.model.sequence : 0,
            .hidden = shape.model.hidden,
            .words = parallel::words_of(shape.model.vocabulary, rows, shape.tensor.index)};
  }

  void embed() {
    const bool adds_positions = learns_positions() && stage_.shape.tensor.index == 0;
    const kernels::In positions =
        adds_positions ? first_elems(stage_.store.weight(places_.positions), position_elems()) : kernels::In{};
    layer().forward(stage_.workspace, ids_.in(), stage_.store.weight(places_.words), positions, sum_.begin(stage_));
    sum_.end(stage_);
    out_.x = std::move(sum_.sum);
  }

  void weight_gradient() {
    const kernels::InOut positions =
        learns_positions() ? first_elems(gradients_.of(places_.positions), position_elems()) : kernels::InOut{};
    layer().backward(stage_.workspace, ids_.in(), d_out_all_.of(out_.d).in(), gradients_.of(places_.words), positions);
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
