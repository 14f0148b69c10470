// A layer's pieces and exchanges, its attention, and what its parts have in common.
#include "trainer/model/layer_run.h"

#include <utility>

#include "core/error.h"
#include "kernels/copy/copy.h"

namespace lockstep::trainer {

using workload::Side;

LayerRun::LayerRun(const StageContext& stage, std::int32_t part, std::size_t first, LayerPosition position,
                   Boundary& in, Boundary& out, std::vector<parallel::EarlierSlice> earlier)
    : stage_(stage),
      first_(first),
      indices_(stage.shape.model, stage.shape.layout.ep, stage.shape.layout.mlp_tiles),
      fp8_(stage.fp8.of_part(part)),
      position_(position),
      in_(in),
      out_(out),
      gradients_(stage.store.gradients(part)),
      earlier_(std::move(earlier)),
      mlp_(static_cast<std::size_t>(stage.shape.layout.mlp_tiles)),
      mixture_(stage, indices_, first, activation_kind(), stage.router_bias.of_part(part)) {
  if (stage.context) context_ = parallel::make_context_attention(*stage.context, stage.workspace);
  if (!stage.shape.layout.has_grid()) return;
  const auto add = [&](Kind kind, WeightIndex weight, const GridEnds& ends) {
    grid_.try_emplace(kind, stage, kind, weight.behind(first), gradients_, ends);
  };
  Tile& tile = mlp_.front();
  add(Kind::qkv, indices_.qkv, {&n1_, &attention_.qkv, &d_qkv_, &d_n1_.sum});
  add(Kind::projection, indices_.projection, {&attention_.o, &attention_out_.sum, &dh_, &d_o_});
  add(Kind::up, indices_.up, {&n2_, &tile.saved.pre, &tile.d_pre, &d_n2_.sum});
  add(Kind::down, indices_.down, {&tile.saved.act, &mlp_out_.sum, &out_.d, &tile.d_act});
}

bool LayerRun::runs_on_grid(PieceName what) {
  if (!grid_.empty()) grid_.at(what.kind).run(what);
  return !grid_.empty();
}

void LayerRun::run(PieceName what, Op op) {
  switch (what.side) {
    case Side::forward:
      return forward(what, op);
    case Side::input_gradient:
      return input_gradient(what, op);
    case Side::weight_gradient:
      return weight_gradient(what, op);
    case Side::regather:
      LOCKSTEP_CHECK(false, "not a kernel");
  }
}

GptStage::Exchange LayerRun::exchange_counts(PieceName what) {
  return is_of_mixture(what.kind) ? mixture_.exchange_counts(what) : GptStage::Exchange{};
}

GptStage::Exchange LayerRun::exchange(PieceName what) {
  if (what.kind == Kind::exchange_context) {
    return context_->exchange(what.side != Side::forward, workload::ExchangePosition::of_number(what.turn));
  }
  if (is_of_mixture(what.kind)) return mixture_.exchange(what);
  if (what.kind == Kind::exchange_norm) return norm_run_.exchange();
  if (!grid_.empty()) return grid_.at(what.kind).exchange(what);
  if (what.kind == Kind::keep_input) {
    in_.x = stage_.make_own_rows();
    return {x_part_.in(), in_.x.out()};
  }
  const RowTile rows = rows_of(what);
  if (!gathers(what)) return sum_of(what).exchange(stage_, rows);
  switch (what.kind) {
    case Kind::enter_attention:
    case Kind::qkv:
      return n1_all_.exchange(stage_, n1_, rows);
    case Kind::enter_mlp:
    case Kind::up:
      return n2_all_.exchange(stage_, n2_, rows);
    case Kind::leave_mlp:
      return d_out_all_.exchange(stage_, out_.d, rows);
    default:
      LOCKSTEP_CHECK(what.kind == Kind::leave_attention, "an exchange of a layer");
      return dh_all_.exchange(stage_, dh_, rows);
  }
}

void LayerRun::exchanged(PieceName what) {
  if (what.kind == Kind::exchange_context) {
    return context_->exchanged(what.side != Side::forward, workload::ExchangePosition::of_number(what.turn));
  }
  if (is_of_mixture(what.kind)) return mixture_.exchanged(what);
  if (what.kind == Kind::exchange_norm) return;
  if (!grid_.empty()) return grid_.at(what.kind).exchanged(what);
  if (what.kind == Kind::keep_input) return x_part_.reset();
  if (!gathers(what)) sum_of(what).exchanged(stage_, rows_of(what));
  if (what.side == Side::regather && rows_of(what).is_last()) (what.kind == Kind::qkv ? n1_ : n2_).reset();
}

std::vector<parallel::Tensor*> LayerRun::kept() {
  std::vector<parallel::Tensor*> all{&in_.x, &x_part_,        &norm1_.mean,  &norm1_.rstd,
                                     &n1_,   &attention_.qkv, &attention_.o, &attention_.lse,
                                     &h_,    &norm2_.mean,    &norm2_.rstd,  &n2_};
  for (Tile& tile : mlp_) {
    all.push_back(&tile.saved.pre);
    all.push_back(&tile.saved.act);
  }
  return all;
}

GptStage::BlockEnds LayerRun::ends_of(GptStage::Block block) {
  using Block = GptStage::Block;
  Tile& tile = mlp_.front();
  switch (block) {
    case Block::attention:
      return {&n1_, &dh_, [this] { return attention_out_.sum.in(); }, &d_n1_.sum};
    case Block::mlp:
      return {&n2_, &out_.d, [this] { return mlp_out_.sum.in(); }, &d_n2_.sum};
    case Block::up:
      return {&n2_, &tile.d_pre, [&tile] { return tile.saved.pre.in(); }, &d_n2_.sum};
    case Block::down:
      return {&tile.saved.act, &out_.d, [this] { return mlp_out_.sum.in(); }, &tile.d_act};
    default:
      LOCKSTEP_CHECK(block == Block::core, "a block of a layer");
      return {&attention_.qkv, &d_o_, [this] { return core_output(); }, &d_qkv_,
              [this] { context_->begin_backward(d_o_.in()); }};
  }
}

kernels::In LayerRun::core_output() const {
  if (context_) return context_->output();
  return o_in_tiles_.given() ? o_in_tiles_.in() : attention_.o.in();
}

void LayerRun::give_up_core_output() {
  if (context_) return context_->give_up_output();
  attention_.o.reset();
  o_in_tiles_.reset();
}

parallel::AttentionLayer LayerRun::attention() const {
  const workload::Model& config = stage_.shape.model;
  const std::int64_t ranks = column_ranks(stage_.shape.layout);
  return {.batch = stage_.shape.sequences(),
          .length = stage_.shape.length(),
          .hidden = config.hidden,
          .heads = config.heads / ranks,
          .kv_heads = config.kv_heads / ranks,
          .head_columns = config.head_size,
          .fp8 = fp8_,
          .earlier = earlier_,
          .causal = stage_.shape.causal};
}

void LayerRun::rotate(const parallel::Tensor& qkv, bool backward) const {
  const workload::Model& config = stage_.shape.model;
  const bool halves = config.rope_pairs == workload::RopePairs::halves;
  kernels::Rotary how{};
  how.pairs = halves ? kernels::RotaryPairs::halves : kernels::RotaryPairs::neighbours;
  how.theta = static_cast<float>(config.rope_theta);
  how.scaling = {.factor = static_cast<double>(config.rope_factor),
                 .low_frequency = static_cast<double>(config.rope_low_freq_factor),
                 .high_frequency = static_cast<double>(config.rope_high_freq_factor),
                 .positions = static_cast<double>(config.rope_original_positions)};
  how.backward = backward;
  attention().rotate(stage_.workspace, how, qkv, stage_.shape.first_positions());
}

parallel::Activation LayerRun::activation_kind() const {
  if (!has_activation()) return parallel::Activation::gelu_in_products;
  return stage_.shape.model.gated ? parallel::Activation::swiglu : parallel::Activation::gelu;
}

kernels::In LayerRun::bias(WeightIndex index) const {
  return index.has_bias ? stage_.store.weight(first_ + index.bias()) : kernels::In{};
}

parallel::LinearWeights LayerRun::row_parallel(WeightIndex index) const {
  return {weight(index), stage_.shape.tensor.index == 0 ? bias(index) : kernels::In{}};
}

parallel::LinearGradients LayerRun::gradients(WeightIndex index) {
  return {gradients_.of(first_ + index.weight),
          index.has_bias ? gradients_.of(first_ + index.bias()) : kernels::InOut{}};
}

bool LayerRun::gathers(PieceName what) {
  const bool enters = what.kind == Kind::enter_attention || what.kind == Kind::enter_mlp;
  return what.side == Side::regather || enters == (what.side == Side::forward);
}

RowSum& LayerRun::sum_of(PieceName what) {
  switch (what.kind) {
    case Kind::leave_attention:
      return attention_out_;
    case Kind::leave_mlp:
      return mlp_out_;
    case Kind::enter_attention:
      return d_n1_;
    default:
      LOCKSTEP_CHECK(what.kind == Kind::enter_mlp, "not an exchange of a layer");
      return d_n2_;
  }
}

bool LayerRun::keeps(Op op) const {
  return stage_.mode == Mode::train &&
         (stage_.shape.layout.recompute != workload::Recompute::full || op == Op::recompute);
}

bool LayerRun::is_selective() const {
  return stage_.mode == Mode::train && stage_.shape.layout.recompute == workload::Recompute::selective;
}

void LayerRun::forward(PieceName what, Op op) {
  const Kind kind = what.kind;
  if (is_of_mixture(kind)) return mixture_forward(kind, keeps(op));
  switch (kind) {
    case Kind::attention_norm:
      return attention_norm(what, keeps(op));
    case Kind::qkv:
      return qkv(what, keeps(op));
    case Kind::rotary:
      return rotate(attention_.qkv, false);
    case Kind::split_heads:
      return split_heads(keeps_core(op));
    case Kind::merge_context:
      return context_->merge(what.turn);
    case Kind::scores:
    case Kind::values:
    case Kind::core:
      return context_ ? context_->core(what.turn) : core(keeps_core(op));
    case Kind::projection:
      return project(what, keeps_core(op));
    case Kind::mlp_norm:
      return mlp_norm(what, op);
    case Kind::keep_input:
      return keep_part_of_input();
    case Kind::up:
      return up(tile_of(what), what, keeps(op));
    case Kind::activation:
      return activation(mlp_[tile_of(what)], keeps(op));
    case Kind::down:
      return down(tile_of(what), what, keeps(op));
    case Kind::shared_experts:
      return shared_experts(op);
    default:
      LOCKSTEP_CHECK(kind == Kind::mlp_residual, "a kernel of a layer");
      return residual(op);
  }
}

void LayerRun::input_gradient(PieceName what, Op op) {
  const Kind kind = what.kind;
  if (is_of_mixture(kind)) return mixture_input_gradient(kind);
  switch (kind) {
    case Kind::shared_experts:
      return shared_experts_gradient();
    case Kind::down:
      return down_gradient(tile_of(what), what);
    case Kind::activation:
      return activation_gradient(mlp_[tile_of(what)]);
    case Kind::up:
      return up_gradient(tile_of(what), what);
    case Kind::mlp_norm:
      return mlp_norm_backward(what, op);
    case Kind::projection:
      return projection_gradient(what);
    case Kind::split_heads:
      return join_heads();
    case Kind::merge_context:
      return context_->merge_gradients(what.turn);
    case Kind::scores:
    case Kind::values:
    case Kind::core:
      return context_ ? context_->core_gradient(what.turn) : core_gradient();
    case Kind::rotary:
      return rotate(d_qkv_, true);
    case Kind::qkv:
      return qkv_gradient(what);
    default:
      LOCKSTEP_CHECK(kind == Kind::attention_norm, "a kernel of a layer");
      return attention_norm_backward(what, op);
  }
}

void LayerRun::weight_gradient(PieceName what, Op op) {
  const Kind kind = what.kind;
  if (is_of_mixture(kind)) return mixture_.weight_gradient(kind, gradients_, n2_);
  switch (kind) {
    case Kind::down:
      return down_weight_gradient(tile_of(what), what);
    case Kind::up:
      return up_weight_gradient(tile_of(what), what);
    case Kind::shared_experts:
      return shared_experts_weight_gradient();
    case Kind::projection:
      return projection_weight_gradient(what);
    default:
      LOCKSTEP_CHECK(kind == Kind::qkv, "a kernel of a layer");
      return qkv_weight_gradient(what, op);
  }
}

void LayerRun::attention_norm(PieceName what, bool keeps) {
  const parallel::NormLayer norm = norm_run_.begin(stage_, what);
  if (norm.is_last()) n1_ = stage_.make_own_rows();
  norm.forward(stage_.workspace, norm_weights(indices_.norm1), in_.x.in(), norm1_, n1_.out());
  if (norm_run_.ends(norm) && !keeps) norm1_.reset();
}

void LayerRun::qkv(PieceName what, bool keeps) {
  if (!runs_on_grid(what)) {
    attention().qkv(stage_.workspace, column_parallel(indices_.qkv), n1_all_.of(n1_).in(), attention_, rows_of(what));
  }
  if (!is_last(what)) return;
  n1_all_.reset();
  if (!keeps) n1_.reset();
}

void LayerRun::core(bool keeps) {
  if (parallel::Tensor qkv = in_row_order(stage_, attention_.qkv); qkv.given()) attention_.qkv = std::move(qkv);
  attention().core(stage_.workspace, attention_);
  o_in_tiles_ = in_tile_order(stage_, attention_.o);
  if (!keeps) attention_.lse.reset();
  if (keeps || is_selective() || !stage_.shape.last_slice) return;
  attention_.qkv.reset();
  for (const parallel::EarlierSlice& slice : earlier_) slice.qkv->reset();
}

void LayerRun::split_heads(bool keeps) {
  context_->split(attention_.qkv.in());
  if (keeps || !is_selective()) attention_.qkv.reset();
}

void LayerRun::project(PieceName what, bool keeps) {
  if (context_ && !keeps) context_->forget();
  if (!runs_on_grid(what)) {
    const RowTile rows = rows_of(what);
    attention().of_projection().of_tile(rows).forward(stage_.workspace, row_parallel(indices_.projection),
                                                      rows.of(core_output()), attention_out_.begin(stage_, rows));
    attention_out_.end(stage_, rows);
  }
  if (!keeps && is_last(what)) give_up_core_output();
}

void LayerRun::keep_part_of_input() {
  if (stage_.mode != Mode::train) return;
  const std::int64_t elems = in_.x.elems() / stage_.shape.tensor.ranks;
  x_part_ = stage_.make(elems);
  kernels::CopyRows copy{1, elems};
  copy.from = in_.x.in(stage_.shape.tensor.index * elems, elems);
  copy.to = x_part_.out();
  kernels::run(copy, stage_.workspace.where);
  in_.x.reset();
}

void LayerRun::projection_gradient(PieceName what) {
  if (runs_on_grid(what)) return;
  const RowTile rows = rows_of(what);
  d_o_ = attention().projection_gradient(stage_.workspace, weight(indices_.projection), dh_all_.of(dh_).in(), rows,
                                         std::move(d_o_));
  if (context_) context_->begin_backward(d_o_.in());
}

void LayerRun::projection_weight_gradient(PieceName what) {
  if (!runs_on_grid(what)) {
    attention().of_projection().weight_gradient(stage_.workspace, core_output(), dh_all_.of(dh_).in(),
                                                gradients(indices_.projection));
  }
  if (!is_last(what)) return;
  has_projected_ = true;
  dh_all_.reset();
  if (!in_.x.given()) dh_.reset();  // attention_norm_backward has run before
  if (has_core_gradient_) give_up_core_output();
}

void LayerRun::core_gradient() {
  if (parallel::Tensor d_o = in_row_order(stage_, d_o_); d_o.given()) d_o_ = std::move(d_o);
  d_qkv_ = attention().core_gradient(stage_.workspace, attention_, d_o_.in(), std::move(d_qkv_));
  if (parallel::Tensor d_qkv = in_tile_order(stage_, d_qkv_); d_qkv.given()) d_qkv_ = std::move(d_qkv);
  d_o_.reset();
  attention_.qkv.reset();
  attention_.lse.reset();
  core_gradient_ends();
}

void LayerRun::join_heads() {
  if (!d_qkv_.given()) d_qkv_ = stage_.make(attention().rows() * attention().qkv_columns());
  context_->join(d_qkv_.out());
  d_o_.reset();
  core_gradient_ends();
}

void LayerRun::core_gradient_ends() {
  has_core_gradient_ = true;
  if (has_projected_) give_up_core_output();
}

void LayerRun::qkv_gradient(PieceName what) {
  if (runs_on_grid(what)) return;
  const RowTile rows = rows_of(what);
  attention().of_qkv().of_tile(rows).input_gradient(stage_.workspace, weight(indices_.qkv), rows.of(d_qkv_.in()),
                                                    d_n1_.begin(stage_, rows));
  d_n1_.end(stage_, rows);
}

void LayerRun::qkv_weight_gradient(PieceName what, Op op) {
  if (!runs_on_grid(what)) {
    attention().of_qkv().weight_gradient(stage_.workspace, n1_all_.of(n1_).in(), d_qkv_.in(), gradients(indices_.qkv));
  }
  if (!is_last(what)) return;
  d_qkv_.reset();
  n1_.reset();
  n1_all_.reset();
  if (op == Op::weight_gradient) complete();
}

void LayerRun::attention_norm_backward(PieceName what, Op op) {
  const parallel::NormLayer norm = norm_run_.begin(stage_, what);
  norm.backward_with_residual(stage_.workspace, weight(indices_.norm1), in_.x.in(), norm1_, dh_.in(), d_n1_.sum.inout(),
                              norm.is_first()
                                  ? norm1_gradients_.where(stage_, gradients_, op, indices_.norm1.behind(first_))
                                  : parallel::NormGradients{});
  if (!norm_run_.ends(norm)) return;
  in_.d = std::move(d_n1_.sum);
  in_.x.reset();
  norm1_.reset();
  if (has_projected_ || dh_all_.given()) dh_.reset();  // no other piece needs it, or the other piece has all rows
  if (op == Op::backward) complete();
}

void LayerRun::complete() {
  norm1_gradients_.release(stage_, gradients_, indices_.norm1.behind(first_));
  norm2_gradients_.release(stage_, gradients_, indices_.norm2.behind(first_));
  std::move(gradients_).commit();
  has_projected_ = false;
  has_core_gradient_ = false;
}

}  // namespace lockstep::trainer
