#include "trainer/model/mixture_run.h"

#include <cmath>
#include <utility>

#include "core/error.h"

namespace lockstep::trainer {

using workload::Side;
using workload::WeightPlace;
using Kind = workload::OperationKind;

MixtureRun::MixtureRun(const StageContext& stage, const workload::LayerPlaces& places, std::size_t first,
                       parallel::Activation activation, kernels::In router_bias)
    : stage_(stage), places_(places), first_(first), activation_(activation), router_bias_(router_bias) {}

bool MixtureRun::has(Kind kind) {
  switch (kind) {
    case Kind::router:
    case Kind::permute:
    case Kind::dispatch:
    case Kind::up:
    case Kind::activation:
    case Kind::down:
    case Kind::combine:
    case Kind::unpermute:
      return true;
    default:
      return false;
  }
}

parallel::MixtureLayer MixtureRun::layer() const {
  const workload::Model& model = stage_.shape.model;
  const workload::Layout& layout = stage_.shape.layout;
  return {.router = {.tokens = stage_.shape.own_rows(),
                     .experts = model.experts,
                     .top_k = model.experts_per_token,
                     .scores = model.sigmoid_router ? kernels::RouterScores::sigmoid : kernels::RouterScores::softmax,
                     .normalised = model.normalised_gates && model.experts_per_token > 1,
                     .groups = model.expert_groups,
                     .limit = workload::most_groups_of_token(model)},
          .hidden = model.hidden,
          .inner = model.ffn_hidden,
          .capacity = workload::capacity_of(model, stage_.shape.own_rows()),
          .ranks = layout.ep,
          .index = stage_.shape.expert_rank,
          .activation = activation_};
}

// Both losses are means over the tokens of a rank's microbatch, like the loss itself: gradient_scale is one over the
// tokens of the global batch, and that many of these means are added up.
parallel::MixtureLosses MixtureRun::losses() const {
  const workload::Model& model = stage_.shape.model;
  const auto experts = static_cast<float>(model.experts);
  const auto copies = static_cast<float>(stage_.shape.own_rows() * model.experts_per_token);
  return {.balance_scale = stage_.gradient_scale * static_cast<float>(model.balance_loss) * experts / copies,
          .z_scale = 2 * stage_.gradient_scale * static_cast<float>(model.z_loss)};
}

std::vector<parallel::LinearWeights> MixtureRun::weights(const std::vector<WeightPlace>& experts) const {
  std::vector<parallel::LinearWeights> all;
  for (const WeightPlace& expert : experts) {
    const WeightPlace place = expert.behind(first_);
    all.push_back(
        {stage_.store.weight(place.weight), place.has_bias ? stage_.store.weight(place.bias()) : kernels::In{}});
  }
  return all;
}

std::vector<parallel::LinearGradients> MixtureRun::gradients(const std::vector<WeightPlace>& experts,
                                                             PartGradients& gradients) const {
  std::vector<parallel::LinearGradients> all;
  for (const WeightPlace& expert : experts) {
    const WeightPlace place = expert.behind(first_);
    all.push_back({gradients.of(place.weight), place.has_bias ? gradients.of(place.bias()) : kernels::InOut{}});
  }
  return all;
}

void MixtureRun::forward(Kind kind, bool keeps, const parallel::Tensor& x, parallel::Tensor& sum) {
  const parallel::Workspace& workspace = stage_.workspace;
  switch (kind) {
    case Kind::router:
      layer().route(workspace, stage_.store.weight(first_ + places_.router.weight), router_bias_, x.in(), saved_);
      return;
    case Kind::permute:
      return layer().permute(workspace, x.in(), saved_);
    case Kind::up:
      layer().up(workspace, weights(places_.experts_up), saved_);
      if (!keeps) saved_.here.reset();
      return;
    case Kind::activation:
      layer().activate(workspace, saved_);
      if (!keeps) saved_.mlp.pre.reset();
      return;
    case Kind::down:
      layer().down(workspace, weights(places_.experts_down), saved_);
      if (!keeps) saved_.mlp = {};
      return;
    default:
      LOCKSTEP_CHECK(kind == Kind::unpermute, "a kernel of a mixture");
      sum = stage_.make_own_rows();
      layer().unpermute(workspace, saved_, sum.out());
      if (!keeps) saved_ = {};
  }
}

void MixtureRun::input_gradient(Kind kind, const parallel::Tensor& d_sum, parallel::Tensor& dx) {
  const parallel::Workspace& workspace = stage_.workspace;
  switch (kind) {
    case Kind::unpermute: {
      auto made = layer().unpermute_gradient(workspace, saved_, d_sum.in());
      (stage_.shape.layout.ep == 1 ? d_out_ : d_back_) = std::move(made.rows);
      d_gates_ = std::move(made.gates);
      for (parallel::Tensor* last : {&saved_.back, &saved_.copies, &saved_.gates}) last->reset();
      return;
    }
    case Kind::down:
      (has_activation() ? d_act_ : d_pre_) =
          layer().down_gradient(workspace, weights(places_.experts_down), saved_, d_out_.in());
      if (!has_activation()) saved_.mlp.pre.reset();
      return;
    case Kind::activation:
      d_pre_ = layer().activation_gradient(workspace, saved_, d_act_.in());
      d_act_.reset();
      saved_.mlp.pre.reset();
      return;
    case Kind::up:
      (stage_.shape.layout.ep == 1 ? d_sent_ : d_here_) =
          layer().up_gradient(workspace, weights(places_.experts_up), saved_, d_pre_.in());
      return;
    case Kind::permute:
      dx = stage_.make_own_rows();
      layer().permute_gradient(workspace, saved_, d_sent_.in(), dx.out());
      d_sent_.reset();
      saved_.slots.reset();
      return;
    default:
      LOCKSTEP_CHECK(kind == Kind::router, "a kernel of a mixture");
      d_logits_ = layer().router_gradient(workspace, stage_.store.weight(first_ + places_.router.weight), saved_,
                                          d_gates_.in(), losses(), dx.inout());
      for (parallel::Tensor* last : {&d_gates_, &saved_.logits, &saved_.choices, &saved_.counts}) last->reset();
  }
}

void MixtureRun::weight_gradient(Kind kind, PartGradients& into, parallel::Tensor& x) {
  const parallel::Workspace& workspace = stage_.workspace;
  switch (kind) {
    case Kind::down:
      layer().weight_gradient(workspace, saved_, saved_.mlp.act, d_out_, gradients(places_.experts_down, into));
      saved_.mlp.act.reset();
      d_out_.reset();
      return;
    case Kind::up:
      layer().weight_gradient(workspace, saved_, saved_.here, d_pre_, gradients(places_.experts_up, into));
      saved_.here.reset();
      d_pre_.reset();
      return;
    default:
      LOCKSTEP_CHECK(kind == Kind::router, "a weight gradient of a mixture");
      layer().router_weight_gradient(workspace, x.in(), d_logits_.in(), into.of(first_ + places_.router.weight));
      d_logits_.reset();
      x.reset();
  }
}

GptStage::Exchange MixtureRun::exchange_counts(workload::PieceName what) {
  if (what.kind != Kind::dispatch || what.side != Side::forward || !layer().tells_counts()) return {};
  const parallel::RowExchange counts = layer().exchange_counts(stage_.workspace, saved_, all_counts_);
  return {counts.input, counts.output};
}

void MixtureRun::counts_exchanged() {
  layer().counts_exchanged(stage_.workspace, all_counts_, saved_);
  all_counts_.reset();
}

GptStage::Exchange MixtureRun::exchange(workload::PieceName what) {
  const bool forward = what.side == Side::forward;
  const parallel::Workspace& workspace = stage_.workspace;
  const parallel::RowExchange rows = what.kind == Kind::dispatch
                                         ? (forward ? layer().dispatch(workspace, saved_, saved_.sent, saved_.here)
                                                    : layer().combine(workspace, saved_, d_here_, d_sent_))
                                         : (forward ? layer().combine(workspace, saved_, saved_.out, saved_.back)
                                                    : layer().dispatch(workspace, saved_, d_back_, d_out_));
  return {rows.input, rows.output, rows.matrix};
}

void MixtureRun::exchanged(workload::PieceName what) {
  const bool forward = what.side == Side::forward;
  if (what.kind == Kind::dispatch) {
    (forward ? saved_.sent : d_here_).reset();
  } else {
    (forward ? saved_.out : d_back_).reset();
  }
}

}  // namespace lockstep::trainer
