#include "trainer/model/part_run.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/copy/copy.h"
#include "kernels/fp8/fp8.h"
#include "kernels/residual/residual.h"
#include "parallel/layers/layers.h"
#include "parallel/parameters/device_memory.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

// ---- the state of a stage beside its weights

namespace {

constexpr std::int64_t kPerPart = workload::kFp8LinearLayers * parallel::kFp8Tensors;

// Copies columns of an f32 matrix.
void copy_columns(const kernels::Context& where, std::int64_t rows, std::int64_t columns, const parallel::Tensor& from,
                  std::int64_t from_first, const parallel::Tensor& to, std::int64_t to_first) {
  kernels::CopyRows copy{
      .rows = rows, .columns = columns, .from_stride = from.elems() / rows, .to_stride = to.elems() / rows};
  copy.from = from.in(from_first, (rows - 1) * copy.from_stride + columns);
  copy.to = to.out(to_first, (rows - 1) * copy.to_stride + columns);
  kernels::run(copy, where);
}

}  // namespace

Fp8History::Fp8History(const workload::Layout& layout, std::int64_t parts, const parallel::Workspace& workspace)
    : recipe_(fp8_recipe_of(layout)), numbers_(parts * kPerPart), length_(layout.fp8_history) {
  if (!recipe_ || !recipe_->delayed) return;
  const auto make = [&](core::DType dtype, std::int64_t elems) {
    return parallel::make_zeroed(workspace.memory, workspace.where, parallel::MemoryKind::buffers, dtype, elems);
  };
  history_ = make(core::DType::f32, numbers_ * length_);
  if (length_ > 1) shifted_ = make(core::DType::f32, numbers_ * (length_ - 1));
  codes_ = make(core::DType::f8e4m3, numbers_ * length_);
  for (parallel::Tensor* const numbers : {&previous_, &raised_, &scales_}) *numbers = make(core::DType::f32, numbers_);
}

parallel::Fp8Scaling Fp8History::of_part(std::int64_t part) const {
  if (!previous_.given()) return {recipe_};
  return {recipe_, previous_.in(part * kPerPart, kPerPart), raised_.inout(part * kPerPart, kPerPart)};
}

void Fp8History::end_step(bool trained, const parallel::Workspace& workspace) {
  if (!previous_.given()) return;
  if (trained) {
    if (length_ > 1) {
      copy_columns(workspace.where, numbers_, length_ - 1, history_, 1, shifted_, 0);
      copy_columns(workspace.where, numbers_, length_ - 1, shifted_, 0, history_, 0);
    }
    copy_columns(workspace.where, numbers_, 1, raised_, 0, history_, length_ - 1);
    find_previous(workspace.where);
  }
  parallel::set_zero(workspace.memory.device(), workspace.where, raised_.out());
}

// Encoding a row finds its largest element first, which is what is needed here.
void Fp8History::find_previous(const kernels::Context& where) const {
  kernels::run(kernels::Fp8Encode{.rows = numbers_,
                                  .columns = length_,
                                  .per = kernels::ScalePer::row,
                                  .x = history_.in(),
                                  .largest = previous_.out(),
                                  .scales = scales_.out(),
                                  .codes = codes_.out()},
               where);
}

std::vector<float> Fp8History::steps(const parallel::Workspace& workspace) const {
  if (!history_.given()) return {};
  parallel::finish(workspace.where);
  std::vector<float> values(static_cast<std::size_t>(history_.elems()));
  workspace.memory.device().copy_to_host(values.data(), history_.data(), static_cast<std::size_t>(history_.bytes()));
  return values;
}

void Fp8History::set_steps(std::span<const float> steps, const parallel::Workspace& workspace) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(steps.size()) == history_.elems(), "a history of as many steps");
  workspace.memory.device().copy_to_device(history_.data(), steps.data(), static_cast<std::size_t>(history_.bytes()));
  find_previous(workspace.where);
}

RouterBias::RouterBias(const workload::Model& model, std::int64_t parts, const parallel::Workspace& workspace)
    : experts_(model.experts), rate_(static_cast<float>(model.bias_rate)) {
  if (model.bias_rate == 0) return;
  values_.resize(static_cast<std::size_t>(parts * experts_));
  on_device_ = parallel::make_zeroed(workspace.memory, workspace.where, parallel::MemoryKind::buffers, core::DType::f32,
                                     parts * experts_);
}

kernels::In RouterBias::of_part(std::int64_t part) const {
  return on_device_.given() ? on_device_.in(part * experts_, experts_) : kernels::In{};
}

void RouterBias::balance(std::int64_t part, std::span<const std::int64_t> loads, const parallel::Workspace& workspace) {
  if (values_.empty()) return;
  LOCKSTEP_CHECK(static_cast<std::int64_t>(loads.size()) == experts_, "the choices of each expert");
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  for (std::size_t e = 0; e < loads.size(); ++e) {
    const std::int64_t above = loads[e] * experts_ - all;  // compared with the mean, times the number of experts
    float& value = values_[static_cast<std::size_t>(part * experts_) + e];
    if (above != 0) value += above < 0 ? rate_ : -rate_;
  }
  to_device(part, workspace);
}

std::vector<float> RouterBias::values(std::int64_t part) const {
  if (values_.empty()) return {};
  const auto first = values_.begin() + static_cast<std::ptrdiff_t>(part * experts_);
  return {first, first + static_cast<std::ptrdiff_t>(experts_)};
}

void RouterBias::set_values(std::int64_t part, std::span<const float> values, const parallel::Workspace& workspace) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(values.size()) == experts_ && !values_.empty(), "a bias of each expert");
  std::copy(values.begin(), values.end(), values_.begin() + static_cast<std::ptrdiff_t>(part * experts_));
  to_device(part, workspace);
}

void RouterBias::to_device(std::int64_t part, const parallel::Workspace& workspace) const {
  parallel::finish(workspace.where);
  const auto first = static_cast<std::size_t>(part * experts_);
  workspace.memory.device().copy_to_device(on_device_.as<float>() + first, values_.data() + first,
                                           static_cast<std::size_t>(experts_) * sizeof(float));
}

// ---- gradients of norms, and exchanges of rows

parallel::NormGradients HeldNormGradients::where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                                 workload::WeightIndex norm) {
  const std::int64_t columns = stage.shape.model.hidden;
  const bool holds = op == schedules::Op::input_gradient;
  if (holds) {
    held_ = parallel::make_zeroed(stage.workspace.memory, stage.workspace.where, parallel::MemoryKind::gradients,
                                  core::DType::f32, (norm.has_bias ? 2 : 1) * columns);
  }
  parallel::NormGradients to{holds ? held_.inout(0, columns) : into.of(norm.weight)};
  if (norm.has_bias) to.beta = holds ? held_.inout(columns, columns) : into.of(norm.bias());
  return to;
}

void HeldNormGradients::release(const StageContext& stage, PartGradients& into, workload::WeightIndex norm) {
  if (!held_.given()) return;
  const std::int64_t columns = stage.shape.model.hidden;
  for (std::size_t index = norm.weight; index < norm.end(); ++index) {
    const kernels::InOut sum = into.of(index);
    const auto begin = static_cast<std::int64_t>(index - norm.weight) * columns;
    kernels::run(kernels::ResidualAdd{.count = columns,
                                      .a = {sum.data, sum.dtype, sum.elems},
                                      .b = held_.in(begin, columns),
                                      .y = {sum.data, sum.dtype, sum.elems}},
                 stage.workspace.where);
  }
  held_.reset();
}

namespace {

std::int64_t all_elems(const StageContext& stage) {
  return stage.shape.rows() * stage.shape.model.hidden;
}

}  // namespace

kernels::Out RowSum::begin(const StageContext& stage) {
  term_ = stage.make(all_elems(stage));
  return term_.out();
}

void RowSum::end(const StageContext& stage) {
  if (stage.shape.tensor.ranks == 1) sum = std::move(term_);
}

GptStage::Exchange RowSum::exchange(const StageContext& stage) {
  if (!stage.shape.layout.sequence_parallel) return {term_.in(), term_.out()};
  sum = stage.make_own_rows();
  return {term_.in(), sum.out()};
}

void RowSum::exchanged(const StageContext& stage) {
  if (stage.shape.layout.sequence_parallel) {
    term_.reset();
  } else {
    sum = std::move(term_);
  }
}

GptStage::Exchange RowGather::exchange(const StageContext& stage, const parallel::Tensor& own) {
  all_ = stage.workspace.memory.make(parallel::MemoryKind::buffers, stage.shape.layout.compute, all_elems(stage));
  return {own.in(), all_.out()};
}

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
    const std::int64_t rows = shape_of_share(stage_.store.parameters()[indices_.words], shape.tensor.ranks).front();
    return {.tokens = tokens,
            .length = learns_positions() ? length : 0,
            .hidden = shape.model.hidden,
            .words = parallel::words_of(shape.model.vocabulary, rows, shape.tensor.index)};
  }

  // Calls visit(layer, first token, first position) once for all tokens. On context ranks: once per run of tokens,
  // because their positions are not consecutive.
  template <class Visit>
  void for_runs(const Visit& visit) const {
    const GptShape& shape = stage_.shape;
    if (shape.layout.cp == 1 || !learns_positions()) {
      return visit(layer(shape.rows(), shape.length()), 0, shape.first_token);
    }
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
          adds_positions ? part_of(stage_.store.weight(indices_.positions), position * hidden, run.length * hidden)
                         : kernels::In{};
      run.forward(stage_.workspace, ids_.in(token, run.tokens), stage_.store.weight(indices_.words), positions,
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
          learns_positions() ? part_of(gradients_.of(indices_.positions), position * hidden, run.length * hidden)
                             : kernels::InOut{};
      run.backward(stage_.workspace, ids_.in(token, run.tokens), part_of(dy, token * hidden, run.tokens * hidden),
                   gradients_.of(indices_.words), positions);
    });
    d_out_all_.reset();
    out_.d.reset();
    std::move(gradients_).commit();
  }

  const StageContext& stage_;
  workload::EmbeddingIndices indices_;
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
    stage_.norm().forward(stage_.workspace, stage_.norm_weights(norm_index_), in_.x.in(), norm_, n_.out());
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
    stage_.norm().backward(stage_.workspace, stage_.store.weight(norm_index_.weight), in_.x.in(), norm_,
                           d_n_.sum.inout(), norm_gradients_.where(stage_, gradients_, op, norm_index_));
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
