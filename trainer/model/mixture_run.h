// Runs the pieces of a layer from its router to the sum of its experts' rows, for one microbatch; in layer_run.cpp they
// replace the MLP. Tensors are freed by the last piece of the backward that uses them, which is the same in every
// schedule: gradients of weights come after those of inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/layers/mixture.h"
#include "trainer/model/part_run.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

class MixtureRun {
 public:
  // The layer's parameters begin at `first`; `router_bias`: empty, or RouterBias::of_part().
  MixtureRun(const StageContext& stage, const workload::LayerPlaces& places, std::size_t first,
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
  std::vector<parallel::LinearWeights> weights(const std::vector<workload::WeightPlace>& experts) const;
  std::vector<parallel::LinearGradients> gradients(const std::vector<workload::WeightPlace>& experts,
                                                   PartGradients& gradients) const;
  bool has_activation() const { return activation_ != parallel::Activation::gelu_in_products; }

  const StageContext& stage_;
  const workload::LayerPlaces& places_;
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

}  // namespace lockstep::trainer
