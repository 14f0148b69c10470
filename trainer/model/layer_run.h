// A layer of a stage and the mixture of experts in it, as pieces that run one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "parallel/context/context_attention.h"
#include "parallel/layers/layers.h"
#include "parallel/layers/mixture.h"
#include "trainer/model/grid_run.h"
#include "trainer/model/part_run.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

// Runs the pieces of a layer from its router to the sum of its experts' rows, for one microbatch; in a layer they
// replace the MLP. Tensors are freed by the last piece of the backward that uses them, which is the same in every
// schedule: gradients of weights come after those of inputs.
class MixtureRun {
 public:
  // The layer's parameters begin at `first`; `router_bias`: empty, or RouterBias::of_part().
  MixtureRun(const StageContext& stage, const workload::LayerIndices& indices, std::size_t first,
             parallel::Activation activation, kernels::In router_bias);

  static bool has(workload::OperationKind kind);  // true if a piece belongs to the mixture

  // `keeps`: keep tensors for a backward. `x`: output of the norm, used last by the router's weight gradient. `sum`:
  // [own rows, hidden], made by unpermute; `d_sum` is its gradient, and `dx` the result.
  void forward(workload::OperationKind kind, bool keeps, const parallel::Tensor& x, parallel::Tensor& sum);
  void input_gradient(workload::OperationKind kind, const parallel::Tensor& d_sum, parallel::Tensor& dx);
  void weight_gradient(workload::OperationKind kind, PartGradients& gradients, parallel::Tensor& x);

  GptStage::Exchange exchange_counts(workload::PieceName what);  // without an input: there is nothing to send
  void counts_exchanged();
  // [experts] i32, after the router's forward: how many of this rank's tokens chose each expert.
  kernels::In loads() const { return saved_.counts.in(); }
  GptStage::Exchange exchange(workload::PieceName what);
  void exchanged(workload::PieceName what);

 private:
  parallel::MixtureLayer layer() const;
  parallel::MixtureLosses losses() const;
  std::vector<parallel::LinearWeights> weights(const std::vector<workload::WeightIndex>& experts) const;
  std::vector<parallel::LinearGradients> gradients(const std::vector<workload::WeightIndex>& experts,
                                                   PartGradients& gradients) const;
  bool has_activation() const { return activation_ != parallel::Activation::gelu_in_products; }

  const StageContext& stage_;
  const workload::LayerIndices& indices_;
  std::size_t first_;
  parallel::Activation activation_;
  kernels::In router_bias_;
  parallel::MixtureSaved saved_;
  parallel::Tensor all_counts_;
  parallel::Tensor d_back_;  // gradient of the rows that came back
  parallel::Tensor d_gates_;
  parallel::Tensor d_out_;  // gradient of the experts' output rows
  parallel::Tensor d_act_;
  parallel::Tensor d_pre_;
  parallel::Tensor d_here_;  // gradient of the rows received
  parallel::Tensor d_sent_;
  parallel::Tensor d_logits_;
};

// Position of a layer in its group of layers under full recomputation: the first keeps its input, and the output of the
// last is not recomputed.
struct LayerPosition {
  bool first_of_group;
  bool last_of_group;
};

// x + attention(norm 1), then + mlp(norm 2). Memory is freed by the last piece that uses it, whatever the schedule's
// order: if two pieces come in either order, each checks whether the other has freed its tensors.
class LayerRun final : public PartRun {
 public:
  // The arguments must outlive this. The layer's parameters begin at `first`. `earlier`: of the microbatch's earlier
  // slices, from the first on.
  LayerRun(const StageContext& stage, std::int32_t part, std::size_t first, LayerPosition position, Boundary& in,
           Boundary& out, std::vector<parallel::EarlierSlice> earlier);

  void run(workload::PieceName what, schedules::Op op) override;

  GptStage::Exchange exchange_counts(workload::PieceName what) override;
  void counts_exchanged(workload::PieceName /*what*/) override { mixture_.counts_exchanged(); }
  kernels::In loads() const override { return mixture_.loads(); }

  GptStage::Exchange exchange(workload::PieceName what) override;
  // Gathered rows are freed by the kernels that use them.
  void exchanged(workload::PieceName what) override;
  std::vector<parallel::Tensor*> kept() override;
  GptStage::BlockEnds ends_of(GptStage::Block block) override;
  parallel::EarlierSlice slice() override { return {stage_.shape.length(), &attention_.qkv, &d_qkv_}; }

 private:
  using Kind = workload::OperationKind;
  using Op = schedules::Op;
  using PieceName = workload::PieceName;
  using RowTile = parallel::RowTile;
  using WeightIndex = workload::WeightIndex;

  // State of the MLP, or of a tile of it (Layout::mlp_tiles). In the backward: the gradient of the activation's output,
  // if the activation is a kernel of its own, and of its input.
  struct Tile {
    parallel::MlpSaved saved = {};
    parallel::Tensor d_act = {};
    parallel::Tensor d_pre = {};
  };

  // ---- operands of pieces

  RowTile rows_of(PieceName what) const { return stage_.rows_of(what); }
  parallel::AttentionLayer attention() const;
  void rotate(const parallel::Tensor& qkv, bool backward) const;
  parallel::Activation activation_kind() const;
  std::int32_t num_tiles() const { return stage_.shape.layout.mlp_tiles; }
  std::size_t tile_of(PieceName what) const {
    return num_tiles() == 1 ? 0 : static_cast<std::size_t>(std::max(workload::tile_of(what), 0));
  }
  bool is_first(std::size_t tile) const { return tile == 0; }
  bool is_last(std::size_t tile) const { return tile + 1 == mlp_.size(); }
  bool is_mixture() const { return stage_.shape.model.experts > 0; }
  bool is_of_mixture(Kind kind) const { return is_mixture() && MixtureRun::has(kind); }
  bool has_activation() const { return workload::has_activation(stage_.shape.model, stage_.shape.layout); }
  kernels::In weight(WeightIndex index) const { return stage_.store.weight(first_ + index.weight); }
  kernels::In bias(WeightIndex index) const;
  parallel::NormWeights norm_weights(WeightIndex norm) const { return stage_.norm_weights(norm.behind(first_)); }
  parallel::LinearWeights column_parallel(WeightIndex index) const { return {weight(index), bias(index)}; }
  parallel::LinearWeights row_parallel(WeightIndex index) const;
  parallel::LinearGradients gradients(WeightIndex index);
  // Rows that enter a tensor-parallel part are gathered, and the terms of their gradient are summed; for rows that
  // leave it, it is the other way round.
  static bool gathers(PieceName what);
  RowSum& sum_of(PieceName what);
  // Runs a piece of a product on a grid of ranks; false if they form none.
  bool runs_on_grid(PieceName what);
  // True for the last piece of a product.
  bool is_last(PieceName what) const {
    return grid_.empty() ? rows_of(what).is_last() : grid_.at(what.kind).is_last(what);
  }
  bool keeps(Op op) const;
  bool is_selective() const;
  bool keeps_core(Op op) const { return keeps(op) && (!is_selective() || op == Op::recompute); }

  // ---- dispatch of pieces to functions

  void forward(PieceName what, Op op);
  void input_gradient(PieceName what, Op op);
  void weight_gradient(PieceName what, Op op);

  // ---- attention (layer_run.cpp)

  void attention_norm(PieceName what, bool keeps);
  void qkv(PieceName what, bool keeps);
  void core(bool keeps);
  // Context-parallel ranks have queries, keys and values one after the other.
  void split_heads(bool keeps);
  void project(PieceName what, bool keeps);
  kernels::In core_output() const;
  void give_up_core_output();
  // Called after the last use of the whole input.
  void keep_part_of_input();

  void projection_gradient(PieceName what);
  void projection_weight_gradient(PieceName what);
  void core_gradient();
  void join_heads();
  void core_gradient_ends();
  void qkv_gradient(PieceName what);
  void qkv_weight_gradient(PieceName what, Op op);
  void attention_norm_backward(PieceName what, Op op);
  void complete();

  // ---- the MLP (mlp_run.cpp)

  // The layer's own tile, or a mixture's shared experts.
  parallel::MlpLayer mlp() const;
  void mlp_norm(PieceName what, Op op);
  void up(std::size_t t, PieceName what, bool keeps);
  void activation(Tile& tile, bool keeps);
  void down(std::size_t t, PieceName what, bool keeps);
  // Writes a tile's output to the sum of all tiles, or adds it to that of the earlier ones.
  template <class Run>
  void add_tile(RowSum& sum, bool is_first, const RowTile& rows, const Run& run);
  void mixture_forward(Kind kind, bool keeps);
  void shared_experts(Op op);
  // Adds the output of the shared experts, if there are any, to that of the routed ones.
  void add_to(parallel::Tensor& sum, parallel::Tensor& shared);
  void residual(Op op);

  void down_gradient(std::size_t t, PieceName what);
  void activation_gradient(Tile& tile);
  // Tiles go backward from the last to the first.
  void down_weight_gradient(std::size_t t, PieceName what);
  void up_gradient(std::size_t t, PieceName what);
  void mixture_input_gradient(Kind kind);
  void shared_experts_gradient();
  // The router's weight gradient, which comes later, is the last user of the norm's output.
  void shared_experts_weight_gradient();
  void up_weight_gradient(std::size_t t, PieceName what);
  // The gradient of the residual stream between the blocks.
  void mlp_norm_backward(PieceName what, Op op);

  const StageContext& stage_;
  std::size_t first_;
  workload::LayerIndices indices_;
  parallel::Fp8Scaling fp8_;
  LayerPosition position_;
  Boundary& in_;
  Boundary& out_;
  PartGradients gradients_;
  std::vector<parallel::EarlierSlice> earlier_;

  parallel::Tensor x_part_;  // part of the input, with Layout::partition_activations
  NormRun norm_run_;

  // Forward. Shapes are [own rows, own columns], except for tensors with `all` in their name and those that blocks
  // keep.
  parallel::NormSaved norm1_;
  parallel::Tensor n1_;  // output of norm 1
  RowGather n1_all_;
  parallel::AttentionSaved attention_;
  parallel::Tensor o_in_tiles_;  // attention_.o in tile order, if that is not the order of rows
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
  std::map<Kind, GridLinearRun> grid_;  // the products of ranks in a grid
};

}  // namespace lockstep::trainer
