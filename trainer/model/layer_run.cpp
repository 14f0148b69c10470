// x + attention(norm 1), then + mlp(norm 2). Memory is given up by the last piece that uses it, whatever order the
// schedule has: where a piece that comes in either order has to know, it looks at what the other one gives up.
#include <utility>

#include "core/error.h"
#include "kernels/residual/residual.h"
#include "parallel/layers/attention.h"
#include "parallel/layers/mlp.h"
#include "parallel/layers/norm.h"
#include "trainer/model/norm_gradients.h"
#include "trainer/model/parameter_order.h"
#include "trainer/model/part_run.h"
#include "trainer/model/shared_rows.h"

namespace lockstep::trainer {
namespace {

using schedules::Op;

class LayerRun final : public PartRun {
 public:
  LayerRun(const StageContext& stage, std::int32_t part, std::size_t first, Boundary& in, Boundary& out)
      : stage_(stage), part_(part), first_(first), in_(in), out_(out) {}

  void run(What what, Op op) override {
    const bool keeps = stage_.mode == Mode::train && (stage_.shape.recompute != Recompute::full || op == Op::recompute);
    switch (what) {
      case What::attention_in:
        return attention_in();
      case What::qkv:
        return qkv(keeps);
      case What::core:
        return core(keeps);
      case What::project:
        return project(keeps);
      case What::mlp_in:
        return mlp_in();
      case What::mlp_up:
        return mlp_up(keeps);
      case What::mlp_down:
        return mlp_down(keeps);
      case What::mlp_out:
        return mlp_out(keeps);
      case What::mlp_input_gradient:
        return mlp_input_gradient();
      case What::mlp_weight_gradient:
        return mlp_weight_gradient();
      case What::mlp_in_backward:
        return mlp_in_backward(op);
      case What::attention_input_gradient:
        return attention_input_gradient();
      case What::attention_weight_gradient:
        return attention_weight_gradient(op);
      case What::attention_in_backward:
        return attention_in_backward(op);
      default:
        LOCKSTEP_CHECK(false, "not a kernel of a layer");
    }
  }

  GptStage::Exchange exchange(What what) override {
    switch (what) {
      case What::gather_attention:
      case What::regather_attention:
        return n1_all_.exchange(stage_, n1_);
      case What::gather_mlp:
      case What::regather_mlp:
        return n2_all_.exchange(stage_, n2_);
      case What::gather_mlp_gradient:
        return d_out_all_.exchange(stage_, out_.d);
      case What::gather_attention_gradient:
        return dh_all_.exchange(stage_, dh_);
      default:
        return sum_of(what).exchange(stage_);
    }
  }

  void exchanged(What what) override {
    switch (what) {
      case What::sum_attention:
      case What::sum_mlp:
      case What::sum_attention_gradient:
      case What::sum_mlp_gradient:
        return sum_of(what).exchanged(stage_);
      default:
        return;  // what was gathered is given up by the kernels that use it
    }
  }

 private:
  // ---- what pieces work with

  parallel::AttentionLayer attention() const {
    const GptConfig& config = stage_.shape.config;
    return {.batch = stage_.shape.batch,
            .length = stage_.shape.length,
            .hidden = config.hidden,
            .heads = config.heads / stage_.shape.tensor.ranks,
            .head_columns = config.hidden / config.heads};
  }
  parallel::MlpLayer mlp() const {
    const std::int64_t hidden = stage_.shape.config.hidden;
    return {.rows = stage_.shape.rows(), .hidden = hidden, .inner = 4 * hidden / stage_.shape.tensor.ranks};
  }
  kernels::In weight(std::size_t parameter) const { return stage_.store.weight(first_ + parameter); }
  parallel::NormWeights norm_weights(std::size_t gamma) const { return {weight(gamma), weight(gamma + 1)}; }
  parallel::LinearWeights column_parallel(std::size_t matrix) const { return {weight(matrix), weight(matrix + 1)}; }
  parallel::LinearWeights row_parallel(std::size_t matrix) const {
    return {weight(matrix), stage_.shape.tensor.index == 0 ? weight(matrix + 1) : kernels::In{}};
  }
  parallel::LinearGradients gradients(std::size_t matrix) const {
    return {stage_.store.gradient(first_ + matrix), stage_.store.gradient(first_ + matrix + 1)};
  }
  RowSum& sum_of(What what) {
    switch (what) {
      case What::sum_attention:
        return attention_out_;
      case What::sum_mlp:
        return mlp_out_;
      case What::sum_attention_gradient:
        return d_n1_;
      default:
        LOCKSTEP_CHECK(what == What::sum_mlp_gradient, "not an exchange of a layer");
        return d_n2_;
    }
  }

  // ---- forward

  void attention_in() {
    n1_ = stage_.make_own_rows();
    stage_.norm().forward(stage_.workspace, norm_weights(kNorm1), in_.x.in(), norm1_, n1_.out());
  }

  void qkv(bool keeps) {
    attention().qkv(stage_.workspace, column_parallel(kQkv), n1_all_.of(n1_).in(), attention_);
    n1_all_.reset();
    if (keeps) return;
    n1_.reset();
    norm1_.reset();
  }

  void core(bool keeps) {
    attention().core(stage_.workspace, attention_);
    if (!keeps) attention_.qkv.reset();
  }

  void project(bool keeps) {
    attention().project(stage_.workspace, row_parallel(kProjection), attention_, attention_out_.begin(stage_));
    attention_out_.end(stage_);
    if (!keeps || stage_.shape.recompute == Recompute::selective) attention_.reset_core();
  }

  void mlp_in() {
    h_ = stage_.make_own_rows();
    n2_ = stage_.make_own_rows();
    stage_.norm().forward_of_sum(stage_.workspace, norm_weights(kNorm2), in_.x.in(), attention_out_.sum.in(), norm2_,
                                 h_.out(), n2_.out());
    attention_out_.sum.reset();
    if (stage_.mode != Mode::train) in_.x.reset();
  }

  void mlp_up(bool keeps) {
    mlp().up(stage_.workspace, column_parallel(kUp), n2_all_.of(n2_).in(), mlp_);
    n2_all_.reset();
    if (keeps) return;
    n2_.reset();
    norm2_.reset();
  }

  void mlp_down(bool keeps) {
    mlp().down(stage_.workspace, row_parallel(kDown), mlp_, mlp_out_.begin(stage_));
    mlp_out_.end(stage_);
    if (!keeps) mlp_.reset();
  }

  void mlp_out(bool keeps) {
    const parallel::Tensor& sum = mlp_out_.sum;
    kernels::run(kernels::ResidualAdd{.count = sum.elems(), .a = h_.in(), .b = sum.in(), .y = sum.out()},
                 stage_.workspace.where);
    out_.x = std::move(mlp_out_.sum);
    if (!keeps) h_.reset();
  }

  // ---- backward

  void mlp_input_gradient() {
    const parallel::MlpWeights weights{column_parallel(kUp), row_parallel(kDown)};
    d_pre_ = mlp().input_gradient(stage_.workspace, weights, mlp_, d_out_all_.of(out_.d).in(), d_n2_.begin(stage_));
    d_n2_.end(stage_);
    mlp_.pre.reset();
  }

  void mlp_weight_gradient() {
    mlp().weight_gradient(stage_.workspace, n2_all_.of(n2_).in(), mlp_, d_pre_.in(), d_out_all_.of(out_.d).in(),
                          {gradients(kUp), gradients(kDown)});
    if (!h_.given()) out_.d.reset();  // mlp_in_backward was before
    mlp_.reset();
    d_pre_.reset();
    n2_.reset();
    n2_all_.reset();
    d_out_all_.reset();
  }

  // The gradient of the residual stream between the blocks.
  void mlp_in_backward(Op op) {
    stage_.norm().backward_with_residual(stage_.workspace, weight(kNorm2), h_.in(), norm2_, out_.d.in(),
                                         d_n2_.sum.inout(), norm2_gradients_.where(stage_, op, first_ + kNorm2));
    dh_ = std::move(d_n2_.sum);
    h_.reset();
    norm2_.reset();
    if (!d_pre_.given() || d_out_all_.given()) out_.d.reset();  // mlp_weight_gradient was before, or needs all rows
  }

  void attention_input_gradient() {
    const parallel::AttentionWeights weights{column_parallel(kQkv), row_parallel(kProjection)};
    d_qkv_ =
        attention().input_gradient(stage_.workspace, weights, attention_, dh_all_.of(dh_).in(), d_n1_.begin(stage_));
    d_n1_.end(stage_);
    attention_.qkv.reset();
    attention_.lse.reset();
  }

  void attention_weight_gradient(Op op) {
    attention().weight_gradient(stage_.workspace, n1_all_.of(n1_).in(), attention_, d_qkv_.in(), dh_all_.of(dh_).in(),
                                {gradients(kQkv), gradients(kProjection)});
    if (!in_.x.given()) dh_.reset();  // attention_in_backward was before
    attention_.reset_core();
    d_qkv_.reset();
    n1_.reset();
    n1_all_.reset();
    dh_all_.reset();
    if (op == Op::weight_gradient) complete();
  }

  void attention_in_backward(Op op) {
    stage_.norm().backward_with_residual(stage_.workspace, weight(kNorm1), in_.x.in(), norm1_, dh_.in(),
                                         d_n1_.sum.inout(), norm1_gradients_.where(stage_, op, first_ + kNorm1));
    in_.d = std::move(d_n1_.sum);
    in_.x.reset();
    norm1_.reset();
    if (!d_qkv_.given() || dh_all_.given()) dh_.reset();  // attention_weight_gradient was before, or needs all rows
    if (op == Op::backward) complete();
  }

  void complete() {
    norm1_gradients_.release(stage_, first_ + kNorm1);
    norm2_gradients_.release(stage_, first_ + kNorm2);
    stage_.store.commit(part_);
  }

  const StageContext& stage_;
  std::int32_t part_;
  std::size_t first_;
  Boundary& in_;
  Boundary& out_;

  // Forward. [own rows, hidden] but for what has `all` in its name and what blocks keep.
  parallel::NormSaved norm1_;
  parallel::Tensor n1_;  // behind norm 1
  RowGather n1_all_;
  parallel::AttentionSaved attention_;
  RowSum attention_out_;
  parallel::Tensor h_;  // the residual stream between the blocks
  parallel::NormSaved norm2_;
  parallel::Tensor n2_;  // behind norm 2
  RowGather n2_all_;
  parallel::MlpSaved mlp_;
  RowSum mlp_out_;

  // Backward.
  RowGather d_out_all_;
  parallel::Tensor d_pre_;  // of what goes into the GELU
  RowSum d_n2_;
  parallel::Tensor dh_;
  RowGather dh_all_;
  parallel::Tensor d_qkv_;
  RowSum d_n1_;
  HeldNormGradients norm1_gradients_;
  HeldNormGradients norm2_gradients_;
};

}  // namespace

std::unique_ptr<PartRun> make_layer_run(const StageContext& stage, std::int32_t part, std::size_t first, Boundary& in,
                                        Boundary& out) {
  return std::make_unique<LayerRun>(stage, part, first, in, out);
}

}  // namespace lockstep::trainer
