// The second half of a layer: its MLP, or a mixture of experts in the MLP's place.
#include "trainer/model/layer_run.h"

#include <utility>

#include "core/error.h"
#include "kernels/residual/residual.h"

namespace lockstep::trainer {

using workload::Side;
using workload::WeightIndex;
using Kind = workload::OperationKind;

MixtureRun::MixtureRun(const StageContext& stage, const workload::LayerIndices& indices, std::size_t first,
                       parallel::Activation activation, kernels::In router_bias)
    : stage_(stage), indices_(indices), first_(first), activation_(activation), router_bias_(router_bias) {}

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

std::vector<parallel::LinearWeights> MixtureRun::weights(const std::vector<WeightIndex>& experts) const {
  std::vector<parallel::LinearWeights> all;
  for (const WeightIndex& expert : experts) {
    const WeightIndex index = expert.behind(first_);
    all.push_back(
        {stage_.store.weight(index.weight), index.has_bias ? stage_.store.weight(index.bias()) : kernels::In{}});
  }
  return all;
}

std::vector<parallel::LinearGradients> MixtureRun::gradients(const std::vector<WeightIndex>& experts,
                                                             PartGradients& gradients) const {
  std::vector<parallel::LinearGradients> all;
  for (const WeightIndex& expert : experts) {
    const WeightIndex index = expert.behind(first_);
    all.push_back({gradients.of(index.weight), index.has_bias ? gradients.of(index.bias()) : kernels::InOut{}});
  }
  return all;
}

void MixtureRun::forward(Kind kind, bool keeps, const parallel::Tensor& x, parallel::Tensor& sum) {
  const parallel::Workspace& workspace = stage_.workspace;
  switch (kind) {
    case Kind::router:
      layer().route(workspace, stage_.store.weight(first_ + indices_.router.weight), router_bias_, x.in(), saved_);
      return;
    case Kind::permute:
      return layer().permute(workspace, x.in(), saved_);
    case Kind::up:
      layer().up(workspace, weights(indices_.experts_up), saved_);
      if (!keeps) saved_.here.reset();
      return;
    case Kind::activation:
      layer().activate(workspace, saved_);
      if (!keeps) saved_.mlp.pre.reset();
      return;
    case Kind::down:
      layer().down(workspace, weights(indices_.experts_down), saved_);
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
          layer().down_gradient(workspace, weights(indices_.experts_down), saved_, d_out_.in());
      if (!has_activation()) saved_.mlp.pre.reset();
      return;
    case Kind::activation:
      d_pre_ = layer().activation_gradient(workspace, saved_, d_act_.in());
      d_act_.reset();
      saved_.mlp.pre.reset();
      return;
    case Kind::up:
      (stage_.shape.layout.ep == 1 ? d_sent_ : d_here_) =
          layer().up_gradient(workspace, weights(indices_.experts_up), saved_, d_pre_.in());
      return;
    case Kind::permute:
      dx = stage_.make_own_rows();
      layer().permute_gradient(workspace, saved_, d_sent_.in(), dx.out());
      d_sent_.reset();
      saved_.slots.reset();
      return;
    default:
      LOCKSTEP_CHECK(kind == Kind::router, "a kernel of a mixture");
      d_logits_ = layer().router_gradient(workspace, stage_.store.weight(first_ + indices_.router.weight), saved_,
                                          d_gates_.in(), losses(), dx.inout());
      for (parallel::Tensor* last : {&d_gates_, &saved_.logits, &saved_.choices, &saved_.counts}) last->reset();
  }
}

void MixtureRun::weight_gradient(Kind kind, PartGradients& into, parallel::Tensor& x) {
  const parallel::Workspace& workspace = stage_.workspace;
  switch (kind) {
    case Kind::down:
      layer().weight_gradient(workspace, saved_, saved_.mlp.act, d_out_, gradients(indices_.experts_down, into));
      saved_.mlp.act.reset();
      d_out_.reset();
      return;
    case Kind::up:
      layer().weight_gradient(workspace, saved_, saved_.here, d_pre_, gradients(indices_.experts_up, into));
      saved_.here.reset();
      d_pre_.reset();
      return;
    default:
      LOCKSTEP_CHECK(kind == Kind::router, "a weight gradient of a mixture");
      layer().router_weight_gradient(workspace, x.in(), d_logits_.in(), into.of(first_ + indices_.router.weight));
      d_logits_.reset();
      x.reset();
  }
}

GptStage::Exchange MixtureRun::exchange_counts(workload::PieceName what) {
  if (what.kind != Kind::dispatch || what.side != Side::forward || !layer().tells_counts()) return {};
  return layer().exchange_counts(stage_.workspace, saved_, all_counts_);
}

void MixtureRun::counts_exchanged() {
  layer().counts_exchanged(stage_.workspace, all_counts_, saved_);
  all_counts_.reset();
}

GptStage::Exchange MixtureRun::exchange(workload::PieceName what) {
  const bool forward = what.side == Side::forward;
  const parallel::Workspace& workspace = stage_.workspace;
  if (what.kind == Kind::dispatch) {
    return forward ? layer().dispatch(workspace, saved_, saved_.sent, saved_.here)
                   : layer().combine(workspace, saved_, d_here_, d_sent_);
  }
  return forward ? layer().combine(workspace, saved_, saved_.out, saved_.back)
                 : layer().dispatch(workspace, saved_, d_back_, d_out_);
}

void MixtureRun::exchanged(workload::PieceName what) {
  const bool forward = what.side == Side::forward;
  if (what.kind == Kind::dispatch) {
    (forward ? saved_.sent : d_here_).reset();
  } else {
    (forward ? saved_.out : d_back_).reset();
  }
}

// ---- the layer's MLP

template <class Run>
void LayerRun::add_tile(RowSum& sum, bool is_first, const RowTile& rows, const Run& run) {
  if (is_first) return run(sum.begin(stage_, rows));
  const kernels::InOut so_far = sum.term();
  const parallel::Tensor term = stage_.make(so_far.elems);
  run(term.out());
  kernels::run(kernels::ResidualAdd{.count = so_far.elems, .a = so_far.in(), .b = term.in(), .y = so_far.out()},
               stage_.workspace.where);
}

parallel::MlpLayer LayerRun::mlp() const {
  const workload::Model& model = stage_.shape.model;
  return {.rows = stage_.shape.layer_rows(),
          .hidden = model.hidden,
          .inner =
              (is_mixture() ? model.shared_hidden : model.ffn_hidden) / column_ranks(stage_.shape.layout) / num_tiles(),
          .activation = activation_kind(),
          .fp8 = fp8_};
}

void LayerRun::mlp_norm(PieceName what, Op op) {
  const parallel::NormLayer norm = norm_run_.begin(stage_, what);
  if (norm.is_first()) h_ = stage_.make_own_rows();
  if (norm.is_last()) n2_ = stage_.make_own_rows();
  norm.forward_of_sum(stage_.workspace, norm_weights(indices_.norm2), in_.x.in(), attention_out_.sum.in(), norm2_,
                      h_.out(), n2_.out());
  attention_out_.sum.reset();
  // Full recomputation keeps only the input of a group's first layer; the others' inputs are recomputed.
  if (stage_.mode != Mode::train || (!keeps(op) && !position_.first_of_group)) in_.x.reset();
  if (norm_run_.ends(norm) && !keeps(op)) norm2_.reset();
}

void LayerRun::up(std::size_t t, PieceName what, bool keeps) {
  if (!runs_on_grid(what)) {
    mlp().up(stage_.workspace, column_parallel(indices_.tiles_up[t]), n2_all_.of(n2_).in(), mlp_[t].saved,
             rows_of(what));
  }
  if (!is_last(what)) return;
  if (is_last(t)) n2_all_.reset();
  if (keeps) return;
  if (is_last(t)) n2_.reset();
  if (!has_activation()) mlp_[t].saved.pre.reset();
}

void LayerRun::activation(Tile& tile, bool keeps) {
  mlp().activate(stage_.workspace, tile.saved);
  if (!keeps) tile.saved.pre.reset();
}

void LayerRun::down(std::size_t t, PieceName what, bool keeps) {
  parallel::Tensor& act = mlp_[t].saved.act;
  if (!runs_on_grid(what)) {
    const RowTile rows = rows_of(what);
    add_tile(mlp_out_, is_first(t), rows, [&](const kernels::Out& y) {
      mlp().of_down().of_tile(rows).forward(stage_.workspace, row_parallel(indices_.tiles_down[t]), rows.of(act.in()),
                                            y);
    });
    if (is_last(t)) mlp_out_.end(stage_, rows);
  }
  if (!keeps && is_last(what)) act.reset();
}

void LayerRun::mixture_forward(Kind kind, bool keeps) {
  mixture_.forward(kind, keeps, n2_, mlp_out_.sum);
  if (!keeps && kind == Kind::permute && stage_.shape.model.shared_hidden == 0) n2_.reset();
  if (kind == Kind::unpermute) add_to(mlp_out_.sum, shared_);
}

void LayerRun::shared_experts(Op op) {
  parallel::MlpSaved& saved = mlp_.front().saved;
  mlp().up(stage_.workspace, column_parallel(indices_.up), n2_.in(), saved);
  if (has_activation()) mlp().activate(stage_.workspace, saved);
  shared_ = stage_.make_own_rows();
  mlp().of_down().forward(stage_.workspace, row_parallel(indices_.down), saved.act.in(), shared_.out());
  // With an early stop the sum over the experts is not recomputed.
  if (op == Op::recompute && position_.last_of_group && stage_.shape.layout.early_stop) shared_.reset();
  if (keeps(op)) return;
  saved = {};
  n2_.reset();
}

void LayerRun::add_to(parallel::Tensor& sum, parallel::Tensor& shared) {
  if (!shared.given()) return;
  kernels::run(kernels::ResidualAdd{.count = sum.elems(), .a = shared.in(), .b = sum.in(), .y = sum.out()},
               stage_.workspace.where);
  shared.reset();
}

void LayerRun::residual(Op op) {
  const parallel::Tensor& sum = mlp_out_.sum;
  kernels::run(kernels::ResidualAdd{.count = sum.elems(), .a = h_.in(), .b = sum.in(), .y = sum.out()},
               stage_.workspace.where);
  out_.x = std::move(mlp_out_.sum);
  if (!keeps(op)) h_.reset();
  // recomputed without an early stop, and used by no one
  if (op == Op::recompute && position_.last_of_group) out_.x.reset();
}

void LayerRun::down_gradient(std::size_t t, PieceName what) {
  if (runs_on_grid(what)) return;
  const RowTile rows = rows_of(what);
  Tile& tile = mlp_[t];
  parallel::Tensor& made = has_activation() ? tile.d_act : tile.d_pre;
  made = mlp().down_gradient(stage_.workspace, weight(indices_.tiles_down[t]), tile.saved, d_out_all_.of(out_.d).in(),
                             rows, std::move(made));
  if (!has_activation() && rows.is_last()) tile.saved.pre.reset();
}

void LayerRun::activation_gradient(Tile& tile) {
  tile.d_pre = mlp().activation_gradient(stage_.workspace, tile.saved, tile.d_act.in());
  tile.saved.pre.reset();
  tile.d_act.reset();
}

void LayerRun::down_weight_gradient(std::size_t t, PieceName what) {
  if (!runs_on_grid(what)) {
    mlp().of_down().weight_gradient(stage_.workspace, mlp_[t].saved.act.in(), d_out_all_.of(out_.d).in(),
                                    gradients(indices_.tiles_down[t]));
  }
  if (!is_last(what)) return;
  mlp_[t].saved.act.reset();
  if (!is_first(t)) return;
  d_out_all_.reset();
  if (!h_.given()) out_.d.reset();  // mlp_norm_backward has run before
}

void LayerRun::up_gradient(std::size_t t, PieceName what) {
  if (runs_on_grid(what)) return;
  const RowTile rows = rows_of(what);
  add_tile(d_n2_, is_last(t), rows, [&](const kernels::Out& dx) {
    mlp().of_up().of_tile(rows).input_gradient(stage_.workspace, weight(indices_.tiles_up[t]),
                                               rows.of(mlp_[t].d_pre.in()), dx);
  });
  if (is_first(t)) d_n2_.end(stage_, rows);
}

void LayerRun::mixture_input_gradient(Kind kind) {
  mixture_.input_gradient(kind, out_.d, d_n2_.sum);
  if (kind == Kind::permute) add_to(d_n2_.sum, d_shared_);
}

void LayerRun::shared_experts_gradient() {
  down_gradient(0, {Kind::shared_experts, Side::input_gradient});
  if (has_activation()) activation_gradient(mlp_.front());
  d_shared_ = stage_.make_own_rows();
  mlp().of_up().input_gradient(stage_.workspace, weight(indices_.up), mlp_.front().d_pre.in(), d_shared_.out());
}

void LayerRun::shared_experts_weight_gradient() {
  down_weight_gradient(0, {Kind::shared_experts, Side::weight_gradient});
  parallel::Tensor& d_pre = mlp_.front().d_pre;
  mlp().of_up().weight_gradient(stage_.workspace, n2_.in(), d_pre.in(), gradients(indices_.up));
  d_pre.reset();
}

void LayerRun::up_weight_gradient(std::size_t t, PieceName what) {
  if (!runs_on_grid(what)) {
    mlp().of_up().weight_gradient(stage_.workspace, n2_all_.of(n2_).in(), mlp_[t].d_pre.in(),
                                  gradients(indices_.tiles_up[t]));
  }
  if (!is_last(what)) return;
  mlp_[t].d_pre.reset();
  if (!is_first(t)) return;
  n2_.reset();
  n2_all_.reset();
}

void LayerRun::mlp_norm_backward(PieceName what, Op op) {
  const parallel::NormLayer norm = norm_run_.begin(stage_, what);
  norm.backward_with_residual(stage_.workspace, weight(indices_.norm2), h_.in(), norm2_, out_.d.in(), d_n2_.sum.inout(),
                              norm.is_first()
                                  ? norm2_gradients_.where(stage_, gradients_, op, indices_.norm2.behind(first_))
                                  : parallel::NormGradients{});
  if (!norm_run_.ends(norm)) return;
  dh_ = std::move(d_n2_.sum);
  h_.reset();
  norm2_.reset();
  if (!mlp_.front().saved.act.given() || d_out_all_.given())
    out_.d.reset();  // a mixture without shared experts has used it before; otherwise down's weight gradient has, or
                     // still has it as all rows
}

}  // namespace lockstep::trainer
