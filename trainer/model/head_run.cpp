#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "parallel/layers/norm.h"
#include "parallel/layers/vocabulary.h"
#include "parallel/parameters/device_memory.h"
#include "trainer/model/norm_gradients.h"
#include "trainer/model/part_run.h"
#include "trainer/model/shared_rows.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
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
        norm_place_(workload::HeadPlaces(stage.shape.model).norm.behind(first)),
        words_(words),
        targets_(targets),
        in_(in),
        gradients_(stage.store.gradients(part)) {}

  const parallel::Tensor& losses() const override { return losses_; }
  const parallel::Tensor& logits() const override { return logits_; }

  void run(PieceName what, Op op) override {
    if (what == PieceName{Kind::head_norm, Side::forward}) return norm();
    if (what == PieceName{Kind::logits, Side::forward}) return make_logits();
    if (what == PieceName{Kind::loss, Side::forward}) return loss();
    if (what == PieceName{Kind::logits, Side::input_gradient}) return input_gradient();
    if (what == PieceName{Kind::logits, Side::weight_gradient}) return weight_gradient(op);
    LOCKSTEP_CHECK((what == PieceName{Kind::head_norm, Side::input_gradient}), "a kernel of the head");
    norm_backward(op);
  }

  GptStage::Exchange exchange(PieceName what) override {
    if (what.kind == Kind::exchange_stats) {
      all_stats_ = make_f32(layer().stats_elems() * stage_.shape.tensor.ranks);
      return {stats_.in(), all_stats_.out()};
    }
    return is_sum(what) ? d_n_.exchange(stage_) : n_all_.exchange(stage_, n_);
  }

  void exchanged(PieceName what) override {
    if (what.kind == Kind::exchange_stats) stats_.reset();
    if (what.side == Side::regather) n_.reset();
    if (is_sum(what)) d_n_.exchanged(stage_);
  }

  std::vector<parallel::Tensor*> kept() override { return {&in_.x, &norm_.mean, &norm_.rstd, &n_, &logits_}; }

 private:
  static bool is_sum(PieceName what) { return what == PieceName{Kind::enter_head, Side::input_gradient}; }
  parallel::HeadLayer layer() const {
    const GptShape& shape = stage_.shape;
    const std::int64_t rows = shape_of_share(stage_.store.parameters()[words_], shape.tensor.ranks).front();
    return {.rows = shape.rows(),
            .hidden = shape.model.hidden,
            .words = parallel::words_of(shape.model.vocabulary, rows, shape.tensor.index),
            .shards = shape.tensor.ranks};
  }
  parallel::Tensor make_f32(std::int64_t elems) const {
    return stage_.workspace.memory.make(parallel::MemoryKind::buffers, core::DType::f32, elems);
  }
  bool trains() const { return stage_.mode == Mode::train; }

  void norm() {
    n_ = stage_.make_own_rows();
    stage_.norm().forward(stage_.workspace, stage_.norm_weights(norm_place_), in_.x.in(), norm_, n_.out());
    if (trains()) return;
    in_.x.reset();
    norm_.reset();
  }

  void make_logits() {
    const parallel::HeadLayer head = layer();
    logits_ = stage_.make(head.rows * head.words.rows);
    head.logits(stage_.workspace, stage_.store.weight(words_), n_all_.of(n_).in(), logits_.out());
    n_all_.reset();
    if (!trains()) n_.reset();
    if (head.shards > 1) make_stats(head);
  }

  // A caller that only wants logits has no targets, but ranks communicate all the same.
  void make_stats(const parallel::HeadLayer& head) {
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
      losses_ = make_f32(stage_.shape.rows());
      layer().loss(stage_.workspace, targets_.in(), all_stats_.in(), stage_.gradient_scale, logits_.inout(),
                   losses_.out());
    }
    all_stats_.reset();
    if (stage_.mode == Mode::evaluate) logits_.reset();
  }

  void input_gradient() {
    layer().input_gradient(stage_.workspace, stage_.store.weight(words_), logits_.in(), d_n_.begin(stage_));
    d_n_.end(stage_);
  }

  void weight_gradient(Op op) {
    layer().weight_gradient(stage_.workspace, n_all_.of(n_).in(), logits_.in(), gradients_.of(words_));
    logits_.reset();
    n_.reset();
    n_all_.reset();
    if (op == Op::weight_gradient) complete();
  }

  void norm_backward(Op op) {
    stage_.norm().backward(stage_.workspace, stage_.store.weight(norm_place_.weight), in_.x.in(), norm_,
                           d_n_.sum.inout(), norm_gradients_.where(stage_, gradients_, op, norm_place_));
    in_.d = std::move(d_n_.sum);
    in_.x.reset();
    norm_.reset();
    if (op == Op::backward) complete();
  }

  void complete() {
    norm_gradients_.release(stage_, gradients_, norm_place_);
    std::move(gradients_).commit();
  }

  const StageContext& stage_;
  workload::WeightPlace norm_place_;
  std::size_t words_;
  const parallel::Tensor& targets_;
  Boundary& in_;
  PartGradients gradients_;

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
