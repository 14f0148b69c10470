// The pieces of a layer from its router to the sum of its experts' rows, at work on one microbatch: see layer_run.cpp,
// whose MLP they take the place of. Tensors go with the last piece of the backward that uses them, which is the same in
// every schedule: weights' gradients come behind those of inputs.
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
  // The parameters of the layer begin at `first`; `router_bias`: none, or RouterBias::of_part().
  MixtureRun(const StageContext& stage, const workload::LayerPlaces& places, std::size_t first,
             parallel::Activation activation, kernels::In router_bias);

  static bool has(workload::OperationKind kind);  // whether a piece is of the mixture

  // `keeps`: for a backward. `x`: behind the norm, which the router's weight gradient uses last. `sum`: [own rows,
  // hidden], made by unpermute; `dx`: its gradient goes in, `d_sum`.
  void forward(workload::OperationKind kind, bool keeps, const parallel::Tensor& x, parallel::Tensor& sum);
  void input_gradient(workload::OperationKind kind, const parallel::Tensor& d_sum, parallel::Tensor& dx);
  void weight_gradient(workload::OperationKind kind, PartGradients& gradients, parallel::Tensor& x);

  GptStage::Exchange exchange_counts(workload::PieceName what);  // without an input: nothing is to be told
  void counts_exchanged();
  // Choices of each expert by this rank's tokens in the forward.
  const std::vector<std::int64_t>& loads() const { return loads_; }
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
  std::vector<std::int64_t> loads_;
  parallel::Tensor all_counts_;
  parallel::Tensor d_back_;  // of what came back
  parallel::Tensor d_gates_;
  parallel::Tensor d_out_;  // of the experts' rows
  parallel::Tensor d_act_;
  parallel::Tensor d_pre_;
  parallel::Tensor d_here_;  // of the rows that came
  parallel::Tensor d_sent_;
  parallel::Tensor d_logits_;
};

}  // namespace lockstep::trainer
