#include <utility>

#include "core/error.h"
#include "parallel/layers/vocabulary.h"
#include "trainer/model/parameter_order.h"
#include "trainer/model/part_run.h"
#include "trainer/model/shared_rows.h"

namespace lockstep::trainer {
namespace {

// Of a table of more positions than the sequences have, those that they have.
template <class View>
View first_elems(View view, std::int64_t elems) {
  view.elems = elems;
  return view;
}

class EmbeddingRun final : public PartRun {
 public:
  EmbeddingRun(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids, Boundary& out)
      : stage_(stage), part_(part), ids_(ids), out_(out) {}

  void run(What what, schedules::Op /*op*/) override {
    switch (what) {
      case What::embed:
        return embed();
      case What::embedding_weight_gradient:
        return weight_gradient();
      default:
        LOCKSTEP_CHECK(false, "not a kernel of the embedding");
    }
  }

  GptStage::Exchange exchange(What what) override {
    return what == What::sum_embedding ? sum_.exchange(stage_) : d_out_all_.exchange(stage_, out_.d);
  }

  void exchanged(What what) override {
    if (what != What::sum_embedding) return;
    sum_.exchanged(stage_);
    out_.x = std::move(sum_.sum);
  }

 private:
  std::int64_t position_elems() const { return stage_.shape.length * stage_.shape.config.hidden; }

  parallel::EmbeddingLayer layer() const {
    const GptShape& shape = stage_.shape;
    const std::int64_t rows = shape_of_share(stage_.store.parameters()[kWords], shape.tensor.ranks).front();
    return {.tokens = shape.rows(),
            .length = shape.length,
            .hidden = shape.config.hidden,
            .words = parallel::words_of(shape.config.vocabulary, rows, shape.tensor.index)};
  }

  void embed() {
    const bool adds_positions = stage_.shape.tensor.index == 0;
    const kernels::In positions =
        adds_positions ? first_elems(stage_.store.weight(kPositions), position_elems()) : kernels::In{};
    layer().forward(stage_.workspace, ids_.in(), stage_.store.weight(kWords), positions, sum_.begin(stage_));
    sum_.end(stage_);
    out_.x = std::move(sum_.sum);
  }

  void weight_gradient() {
    layer().backward(stage_.workspace, ids_.in(), d_out_all_.of(out_.d).in(), stage_.store.gradient(kWords),
                     first_elems(stage_.store.gradient(kPositions), position_elems()));
    d_out_all_.reset();
    out_.d.reset();
    stage_.store.commit(part_);
  }

  const StageContext& stage_;
  std::int32_t part_;
  const parallel::Tensor& ids_;
  Boundary& out_;
  RowSum sum_;
  RowGather d_out_all_;
};

}  // namespace

std::unique_ptr<PartRun> make_embedding_run(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids,
                                            Boundary& out) {
  return std::make_unique<EmbeddingRun>(stage, part, ids, out);
}

}  // namespace lockstep::trainer
