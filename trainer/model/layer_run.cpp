// x + attention(norm 1), then + mlp(norm 2). Memory is freed by the last piece that uses it, whatever the schedule's
// order: if two pieces come in either order, each checks whether the other has freed its tensors.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/copy/copy.h"
#include "kernels/residual/residual.h"
#include "parallel/context/context_attention.h"
#include "parallel/layers/layers.h"
#include "parallel/layers/linear.h"
#include "trainer/model/mixture_run.h"
#include "trainer/model/part_run.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
namespace {

using schedules::Op;
using workload::PieceName;
using workload::Side;
using Kind = workload::OperationKind;
using workload::WeightPlace;

class LayerRun final : public PartRun {
 public:
  LayerRun(const StageContext& stage, std::int32_t part, std::size_t first, LayerPlace place, Boundary& in,
           Boundary& out)
      : stage_(stage),
        first_(first),
        places_(stage.shape.model, stage.shape.layout.ep, stage.shape.layout.mlp_tiles),
        fp8_(stage.fp8.of_part(part)),
        place_(place),
        in_(in),
        out_(out),
        gradients_(stage.store.gradients(part)),
        mlp_(static_cast<std::size_t>(stage.shape.layout.mlp_tiles)),
        mixture_(stage, places_, first, activation_kind(), stage.router_bias.of_part(part)) {
    if (stage.context) context_ = parallel::make_context_attention(*stage.context, stage.workspace);
  }

  void run(PieceName what, Op op) override {
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

  GptStage::Exchange exchange_counts(PieceName what) override {
    return is_of_mixture(what.kind) ? mixture_.exchange_counts(what) : GptStage::Exchange{};
  }
  void counts_exchanged(PieceName /*what*/) override { mixture_.counts_exchanged(); }
  kernels::In loads() const override { return mixture_.loads(); }

  GptStage::Exchange exchange(PieceName what) override {
    if (what.kind == Kind::exchange_context) {
      const parallel::ContextMove move =
          context_->exchange(what.side != Side::forward, workload::ExchangePlace::of_number(what.turn));
      return {move.input, move.output, move.bytes_of_pairs};
    }
    if (is_of_mixture(what.kind)) return mixture_.exchange(what);
    if (what.kind == Kind::keep_input) {
      in_.x = stage_.make_own_rows();
      return {x_part_.in(), in_.x.out()};
    }
    if (!gathers(what)) return sum_of(what).exchange(stage_);
    switch (what.kind) {
      case Kind::enter_attention:
      case Kind::qkv:
        return n1_all_.exchange(stage_, n1_);
      case Kind::enter_mlp:
      case Kind::up:
        return n2_all_.exchange(stage_, n2_);
      case Kind::leave_mlp:
        return d_out_all_.exchange(stage_, out_.d);
      default:
        LOCKSTEP_CHECK(what.kind == Kind::leave_attention, "an exchange of a layer");
        return dh_all_.exchange(stage_, dh_);
    }
  }

  // Gathered rows are freed by the kernels that use them.
  void exchanged(PieceName what) override {
    if (what.kind == Kind::exchange_context) {
      return context_->exchanged(what.side != Side::forward, workload::ExchangePlace::of_number(what.turn));
    }
    if (is_of_mixture(what.kind)) return mixture_.exchanged(what);
    if (what.kind == Kind::keep_input) return x_part_.reset();
    if (!gathers(what)) sum_of(what).exchanged(stage_);
    if (what.side == Side::regather) (what.kind == Kind::qkv ? n1_ : n2_).reset();
  }

  std::vector<parallel::Tensor*> kept() override {
    std::vector<parallel::Tensor*> all{&in_.x, &x_part_,        &norm1_.mean,  &norm1_.rstd,
                                       &n1_,   &attention_.qkv, &attention_.o, &attention_.lse,
                                       &h_,    &norm2_.mean,    &norm2_.rstd,  &n2_};
    for (Tile& tile : mlp_) {
      all.push_back(&tile.saved.pre);
      all.push_back(&tile.saved.act);
    }
    return all;
  }

 private:
  // State of the MLP, or of a tile of it. In the backward: the gradient of the activation's output, if the activation
  // is a kernel of its own, and of its input.
  struct Tile {
    parallel::MlpSaved saved = {};
    parallel::Tensor d_act = {};
    parallel::Tensor d_pre = {};
  };

  // ---- operands of pieces

  parallel::AttentionLayer attention() const {
    const workload::Model& config = stage_.shape.model;
    return {.batch = stage_.shape.layout.microbatch_size,
            .length = stage_.shape.length(),
            .hidden = config.hidden,
            .heads = config.heads / stage_.shape.tensor.ranks,
            .kv_heads = config.kv_heads / stage_.shape.tensor.ranks,
            .head_columns = config.head_size,
            .fp8 = fp8_};
  }
  void rotate(const parallel::Tensor& qkv, bool backward) const {
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
  parallel::Activation activation_kind() const {
    if (!has_activation()) return parallel::Activation::gelu_in_products;
    return stage_.shape.model.gated ? parallel::Activation::swiglu : parallel::Activation::gelu;
  }
  // The layer's own tile, or a mixture's shared experts.
  parallel::MlpLayer mlp() const {
    const workload::Model& model = stage_.shape.model;
    return {.rows = stage_.shape.rows(),
            .hidden = model.hidden,
            .inner = (is_mixture() ? model.shared_hidden : model.ffn_hidden) / stage_.shape.tensor.ranks / num_tiles(),
            .activation = activation_kind(),
            .fp8 = fp8_};
  }
  std::int32_t num_tiles() const { return stage_.shape.layout.mlp_tiles; }
  static std::size_t tile_of(PieceName what) { return static_cast<std::size_t>(std::max(workload::tile_of(what), 0)); }
  bool is_first(std::size_t tile) const { return tile == 0; }
  bool is_last(std::size_t tile) const { return tile + 1 == mlp_.size(); }
  bool is_mixture() const { return stage_.shape.model.experts > 0; }
  bool is_of_mixture(Kind kind) const { return is_mixture() && MixtureRun::has(kind); }
  bool has_activation() const { return workload::has_activation(stage_.shape.model, stage_.shape.layout); }
  kernels::In weight(WeightPlace place) const { return stage_.store.weight(first_ + place.weight); }
  kernels::In bias(WeightPlace place) const {
    return place.has_bias ? stage_.store.weight(first_ + place.bias()) : kernels::In{};
  }
  parallel::NormWeights norm_weights(WeightPlace norm) const { return stage_.norm_weights(norm.behind(first_)); }
  parallel::LinearWeights column_parallel(WeightPlace place) const { return {weight(place), bias(place)}; }
  parallel::LinearWeights row_parallel(WeightPlace place) const {
    return {weight(place), stage_.shape.tensor.index == 0 ? bias(place) : kernels::In{}};
  }
  parallel::LinearGradients gradients(WeightPlace place) {
    return {gradients_.of(first_ + place.weight),
            place.has_bias ? gradients_.of(first_ + place.bias()) : kernels::InOut{}};
  }
  // Rows that enter a tensor-parallel part are gathered, and the terms of their gradient are summed; for rows that
  // leave it, it is the other way round.
  static bool gathers(PieceName what) {
    const bool enters = what.kind == Kind::enter_attention || what.kind == Kind::enter_mlp;
    return what.side == Side::regather || enters == (what.side == Side::forward);
  }
  RowSum& sum_of(PieceName what) {
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
  bool keeps(Op op) const {
    return stage_.mode == Mode::train &&
           (stage_.shape.layout.recompute != workload::Recompute::full || op == Op::recompute);
  }
  bool is_selective() const {
    return stage_.mode == Mode::train && stage_.shape.layout.recompute == workload::Recompute::selective;
  }
  bool keeps_core(Op op) const { return keeps(op) && (!is_selective() || op == Op::recompute); }

  // ---- dispatch of pieces to functions

  void forward(PieceName what, Op op) {
    const Kind kind = what.kind;
    if (is_of_mixture(kind)) return mixture_forward(kind, keeps(op));
    switch (kind) {
      case Kind::attention_norm:
        return attention_norm(keeps(op));
      case Kind::qkv:
        return qkv(keeps(op));
      case Kind::rotary:
        return rotate(attention_.qkv, false);
      case Kind::split_heads:
        return split_heads(keeps_core(op));
      case Kind::merge_context:
        return context_->merge(what.turn);
      case Kind::core:
        return context_ ? context_->core(what.turn) : core(keeps_core(op));
      case Kind::projection:
        return project(keeps_core(op));
      case Kind::mlp_norm:
        return mlp_norm(op);
      case Kind::keep_input:
        return keep_part_of_input();
      case Kind::up:
        return up(tile_of(what), keeps(op));
      case Kind::activation:
        return activation(mlp_[tile_of(what)], keeps(op));
      case Kind::down:
        return down(tile_of(what), keeps(op));
      case Kind::shared_experts:
        return shared_experts(op);
      default:
        LOCKSTEP_CHECK(kind == Kind::mlp_residual, "a kernel of a layer");
        return residual(op);
    }
  }
  void input_gradient(PieceName what, Op op) {
    const Kind kind = what.kind;
    if (is_of_mixture(kind)) return mixture_input_gradient(kind);
    switch (kind) {
      case Kind::shared_experts:
        return shared_experts_gradient();
      case Kind::down:
        return down_gradient(tile_of(what));
      case Kind::activation:
        return activation_gradient(mlp_[tile_of(what)]);
      case Kind::up:
        return up_gradient(tile_of(what));
      case Kind::mlp_norm:
        return mlp_norm_backward(op);
      case Kind::projection:
        return projection_gradient();
      case Kind::split_heads:
        return join_heads();
      case Kind::merge_context:
        return context_->merge_gradients(what.turn);
      case Kind::core:
        return context_ ? context_->core_gradient(what.turn) : core_gradient();
      case Kind::rotary:
        return rotate(d_qkv_, true);
      case Kind::qkv:
        return qkv_gradient();
      default:
        LOCKSTEP_CHECK(kind == Kind::attention_norm, "a kernel of a layer");
        return attention_norm_backward(op);
    }
  }
  void weight_gradient(PieceName what, Op op) {
    const Kind kind = what.kind;
    if (is_of_mixture(kind)) return mixture_.weight_gradient(kind, gradients_, n2_);
    switch (kind) {
      case Kind::down:
        return down_weight_gradient(tile_of(what));
      case Kind::up:
        return up_weight_gradient(tile_of(what));
      case Kind::shared_experts:
        return shared_experts_weight_gradient();
      case Kind::projection:
        return projection_weight_gradient();
      default:
        LOCKSTEP_CHECK(kind == Kind::qkv, "a kernel of a layer");
        return qkv_weight_gradient(op);
    }
  }

  // ---- forward

  void attention_norm(bool keeps) {
    n1_ = stage_.make_own_rows();
    stage_.norm().forward(stage_.workspace, norm_weights(places_.norm1), in_.x.in(), norm1_, n1_.out());
    if (!keeps) norm1_.reset();
  }

  void qkv(bool keeps) {
    attention().qkv(stage_.workspace, column_parallel(places_.qkv), n1_all_.of(n1_).in(), attention_);
    n1_all_.reset();
    if (!keeps) n1_.reset();
  }

  void core(bool keeps) {
    attention().core(stage_.workspace, attention_);
    if (!keeps) attention_.lse.reset();
    if (!keeps && !is_selective()) attention_.qkv.reset();
  }

  // Context-parallel ranks have queries, keys and values one after the other.
  void split_heads(bool keeps) {
    context_->split(attention_.qkv.in());
    if (keeps || !is_selective()) attention_.qkv.reset();
  }

  void project(bool keeps) {
    if (context_ && !keeps) context_->forget();
    attention().of_projection().forward(stage_.workspace, row_parallel(places_.projection), core_output(),
                                        attention_out_.begin(stage_));
    attention_out_.end(stage_);
    if (!keeps) give_up_core_output();
  }
  kernels::In core_output() const { return context_ ? context_->output() : attention_.o.in(); }
  void give_up_core_output() { context_ ? context_->give_up_output() : attention_.o.reset(); }

  void mlp_norm(Op op) {
    h_ = stage_.make_own_rows();
    n2_ = stage_.make_own_rows();
    stage_.norm().forward_of_sum(stage_.workspace, norm_weights(places_.norm2), in_.x.in(), attention_out_.sum.in(),
                                 norm2_, h_.out(), n2_.out());
    attention_out_.sum.reset();
    if (!keeps(op)) norm2_.reset();
    // Full recomputation keeps only the input of a group's first layer; the others' inputs are recomputed.
    if (stage_.mode != Mode::train || (!keeps(op) && !place_.first_of_group)) in_.x.reset();
  }

  // Called after the last use of the whole input.
  void keep_part_of_input() {
    if (stage_.mode != Mode::train) return;
    const std::int64_t elems = in_.x.elems() / stage_.shape.tensor.ranks;
    x_part_ = stage_.make(elems);
    kernels::CopyRows copy{1, elems};
    copy.from = in_.x.in(stage_.shape.tensor.index * elems, elems);
    copy.to = x_part_.out();
    kernels::run(copy, stage_.workspace.where);
    in_.x.reset();
  }

  void up(std::size_t t, bool keeps) {
    mlp().up(stage_.workspace, column_parallel(places_.tiles_up[t]), n2_all_.of(n2_).in(), mlp_[t].saved);
    if (is_last(t)) n2_all_.reset();
    if (keeps) return;
    if (is_last(t)) n2_.reset();
    if (!has_activation()) mlp_[t].saved.pre.reset();
  }

  void activation(Tile& tile, bool keeps) {
    mlp().activate(stage_.workspace, tile.saved);
    if (!keeps) tile.saved.pre.reset();
  }

  void down(std::size_t t, bool keeps) {
    parallel::Tensor& act = mlp_[t].saved.act;
    add_tile(mlp_out_, is_first(t), [&](const kernels::Out& y) {
      mlp().of_down().forward(stage_.workspace, row_parallel(places_.tiles_down[t]), act.in(), y);
    });
    if (is_last(t)) mlp_out_.end(stage_);
    if (!keeps) act.reset();
  }

  // Writes a tile's output to the sum of all tiles, or adds it to that of the earlier ones.
  template <class Run>
  void add_tile(RowSum& sum, bool is_first, const Run& run) {
    if (is_first) return run(sum.begin(stage_));
    const kernels::InOut so_far = sum.term();
    const parallel::Tensor term = stage_.make(so_far.elems);
    run(term.out());
    kernels::run(kernels::ResidualAdd{.count = so_far.elems, .a = so_far.in(), .b = term.in(), .y = so_far.out()},
                 stage_.workspace.where);
  }

  void mixture_forward(Kind kind, bool keeps) {
    mixture_.forward(kind, keeps, n2_, mlp_out_.sum);
    if (!keeps && kind == Kind::permute && stage_.shape.model.shared_hidden == 0) n2_.reset();
    if (kind == Kind::unpermute) add_to(mlp_out_.sum, shared_);
  }

  void shared_experts(Op op) {
    parallel::MlpSaved& saved = mlp_.front().saved;
    mlp().up(stage_.workspace, column_parallel(places_.up), n2_.in(), saved);
    if (has_activation()) mlp().activate(stage_.workspace, saved);
    shared_ = stage_.make_own_rows();
    mlp().of_down().forward(stage_.workspace, row_parallel(places_.down), saved.act.in(), shared_.out());
    // With an early stop the sum over the experts is not recomputed.
    if (op == Op::recompute && place_.last_of_group && stage_.shape.layout.early_stop) shared_.reset();
    if (keeps(op)) return;
    saved = {};
    n2_.reset();
  }

  // Adds the output of the shared experts, if there are any, to that of the routed ones.
  void add_to(parallel::Tensor& sum, parallel::Tensor& shared) {
    if (!shared.given()) return;
    kernels::run(kernels::ResidualAdd{.count = sum.elems(), .a = shared.in(), .b = sum.in(), .y = sum.out()},
                 stage_.workspace.where);
    shared.reset();
  }

  void residual(Op op) {
    const parallel::Tensor& sum = mlp_out_.sum;
    kernels::run(kernels::ResidualAdd{.count = sum.elems(), .a = h_.in(), .b = sum.in(), .y = sum.out()},
                 stage_.workspace.where);
    out_.x = std::move(mlp_out_.sum);
    if (!keeps(op)) h_.reset();
    // recomputed without an early stop, and used by no one
    if (op == Op::recompute && place_.last_of_group) out_.x.reset();
  }

  // ---- backward

  void down_gradient(std::size_t t) {
    Tile& tile = mlp_[t];
    parallel::Tensor& made = has_activation() ? tile.d_act : tile.d_pre;
    made = mlp().down_gradient(stage_.workspace, weight(places_.tiles_down[t]), tile.saved, d_out_all_.of(out_.d).in());
    if (!has_activation()) tile.saved.pre.reset();
  }

  void activation_gradient(Tile& tile) {
    tile.d_pre = mlp().activation_gradient(stage_.workspace, tile.saved, tile.d_act.in());
    tile.saved.pre.reset();
    tile.d_act.reset();
  }

  // Tiles go backward from the last to the first.
  void down_weight_gradient(std::size_t t) {
    mlp().of_down().weight_gradient(stage_.workspace, mlp_[t].saved.act.in(), d_out_all_.of(out_.d).in(),
                                    gradients(places_.tiles_down[t]));
    mlp_[t].saved.act.reset();
    if (!is_first(t)) return;
    d_out_all_.reset();
    if (!h_.given()) out_.d.reset();  // mlp_norm_backward has run before
  }

  void up_gradient(std::size_t t) {
    add_tile(d_n2_, is_last(t), [&](const kernels::Out& dx) {
      mlp().of_up().input_gradient(stage_.workspace, weight(places_.tiles_up[t]), mlp_[t].d_pre.in(), dx);
    });
    if (is_first(t)) d_n2_.end(stage_);
  }

  void mixture_input_gradient(Kind kind) {
    mixture_.input_gradient(kind, out_.d, d_n2_.sum);
    if (kind == Kind::permute) add_to(d_n2_.sum, d_shared_);
  }

  void shared_experts_gradient() {
    down_gradient(0);
    if (has_activation()) activation_gradient(mlp_.front());
    d_shared_ = stage_.make_own_rows();
    mlp().of_up().input_gradient(stage_.workspace, weight(places_.up), mlp_.front().d_pre.in(), d_shared_.out());
  }

  // The router's weight gradient, which comes later, is the last user of the norm's output.
  void shared_experts_weight_gradient() {
    down_weight_gradient(0);
    parallel::Tensor& d_pre = mlp_.front().d_pre;
    mlp().of_up().weight_gradient(stage_.workspace, n2_.in(), d_pre.in(), gradients(places_.up));
    d_pre.reset();
  }

  void up_weight_gradient(std::size_t t) {
    mlp().of_up().weight_gradient(stage_.workspace, n2_all_.of(n2_).in(), mlp_[t].d_pre.in(),
                                  gradients(places_.tiles_up[t]));
    mlp_[t].d_pre.reset();
    if (!is_first(t)) return;
    n2_.reset();
    n2_all_.reset();
  }

  // The gradient of the residual stream between the blocks.
  void mlp_norm_backward(Op op) {
    stage_.norm().backward_with_residual(stage_.workspace, weight(places_.norm2), h_.in(), norm2_, out_.d.in(),
                                         d_n2_.sum.inout(),
                                         norm2_gradients_.where(stage_, gradients_, op, places_.norm2.behind(first_)));
    dh_ = std::move(d_n2_.sum);
    h_.reset();
    norm2_.reset();
    if (!mlp_.front().saved.act.given() || d_out_all_.given())
      out_.d.reset();  // a mixture without shared experts has used it before; otherwise down's weight gradient has, or
                       // still has it as all rows
  }

  void projection_gradient() {
    d_o_ = attention().projection_gradient(stage_.workspace, weight(places_.projection), dh_all_.of(dh_).in());
    if (context_) context_->begin_backward(d_o_.in());
  }

  void projection_weight_gradient() {
    attention().of_projection().weight_gradient(stage_.workspace, core_output(), dh_all_.of(dh_).in(),
                                                gradients(places_.projection));
    has_projected_ = true;
    dh_all_.reset();
    if (!in_.x.given()) dh_.reset();  // attention_norm_backward has run before
    if (has_core_gradient_) give_up_core_output();
  }

  void core_gradient() {
    d_qkv_ = attention().core_gradient(stage_.workspace, attention_, d_o_.in());
    d_o_.reset();
    attention_.qkv.reset();
    attention_.lse.reset();
    core_gradient_ends();
  }
  void join_heads() {
    d_qkv_ = stage_.make(attention().rows() * attention().qkv_columns());
    context_->join(d_qkv_.out());
    d_o_.reset();
    core_gradient_ends();
  }
  void core_gradient_ends() {
    has_core_gradient_ = true;
    if (has_projected_) give_up_core_output();
  }

  void qkv_gradient() {
    attention().of_qkv().input_gradient(stage_.workspace, weight(places_.qkv), d_qkv_.in(), d_n1_.begin(stage_));
    d_n1_.end(stage_);
  }

  void qkv_weight_gradient(Op op) {
    attention().of_qkv().weight_gradient(stage_.workspace, n1_all_.of(n1_).in(), d_qkv_.in(), gradients(places_.qkv));
    d_qkv_.reset();
    n1_.reset();
    n1_all_.reset();
    if (op == Op::weight_gradient) complete();
  }

  void attention_norm_backward(Op op) {
    stage_.norm().backward_with_residual(stage_.workspace, weight(places_.norm1), in_.x.in(), norm1_, dh_.in(),
                                         d_n1_.sum.inout(),
                                         norm1_gradients_.where(stage_, gradients_, op, places_.norm1.behind(first_)));
    in_.d = std::move(d_n1_.sum);
    in_.x.reset();
    norm1_.reset();
    if (has_projected_ || dh_all_.given()) dh_.reset();  // no other piece needs it, or the other piece has all rows
    if (op == Op::backward) complete();
  }

  void complete() {
    norm1_gradients_.release(stage_, gradients_, places_.norm1.behind(first_));
    norm2_gradients_.release(stage_, gradients_, places_.norm2.behind(first_));
    std::move(gradients_).commit();
    has_projected_ = false;
    has_core_gradient_ = false;
  }

  const StageContext& stage_;
  std::size_t first_;
  workload::LayerPlaces places_;
  parallel::Fp8Scaling fp8_;
  LayerPlace place_;
  Boundary& in_;
  Boundary& out_;
  PartGradients gradients_;

  parallel::Tensor x_part_;  // part of the input, with Layout::partition_activations

  // Forward. Shapes are [own rows, hidden], except for tensors with `all` in their name and those that blocks keep.
  parallel::NormSaved norm1_;
  parallel::Tensor n1_;  // output of norm 1
  RowGather n1_all_;
  parallel::AttentionSaved attention_;
  std::unique_ptr<parallel::ContextAttention>
      context_;  // replaces the attention core on several context-parallel ranks
  RowSum attention_out_;
  parallel::Tensor h_;  // the residual stream between the blocks
  parallel::NormSaved norm2_;
  parallel::Tensor n2_;  // output of norm 2
  RowGather n2_all_;
  std::vector<Tile> mlp_;
  RowSum mlp_out_;
  parallel::Tensor
      shared_;  // output of a mixture's shared experts: [own rows, hidden], until it is added to the routed ones'

  // Backward.
  RowGather d_out_all_;
  RowSum d_n2_;
  parallel::Tensor d_shared_;  // the shared experts' part of it, likewise
  parallel::Tensor dh_;
  RowGather dh_all_;
  parallel::Tensor d_o_;        // gradient of the attention core's output
  bool has_projected_ = false;  // the projection's weight gradient has been computed
  bool has_core_gradient_ = false;
  parallel::Tensor d_qkv_;
  RowSum d_n1_;
  HeldNormGradients norm1_gradients_;
  HeldNormGradients norm2_gradients_;
  MixtureRun mixture_;
};

}  // namespace

std::unique_ptr<PartRun> make_layer_run(const StageContext& stage, std::int32_t part, std::size_t first,
                                        LayerPlace place, Boundary& in, Boundary& out) {
  return std::make_unique<LayerRun>(stage, part, first, place, in, out);
}

}  // namespace lockstep::trainer
