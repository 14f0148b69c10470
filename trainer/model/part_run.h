// A part of a stage (embedding, layer, head) working on one microbatch: the computation of its pieces and the tensors
// that it keeps between them. Kernels and exchanges may be called from different threads, but never two that touch the
// same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/view.h"
#include "parallel/context/context_attention.h"
#include "parallel/layers/layers.h"
#include "parallel/layers/linear.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/model/stage_state.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

using PartGradients = parallel::ParameterStore::PartGradients;

// State that the parts of all microbatches share.
struct StageContext {
  GptShape shape;
  parallel::ParameterStore& store;
  parallel::Workspace workspace;
  Fp8History fp8;
  RouterBias router_bias;
  Mode mode = Mode::train;
  float gradient_scale = 1;
  std::shared_ptr<const parallel::ContextPlan> context = nullptr;  // for attention on several context-parallel ranks

  parallel::Tensor make(std::int64_t elems) const {  // in the compute dtype
    return workspace.memory.make(parallel::MemoryKind::activations, shape.layout.compute, elems);
  }
  parallel::Tensor make_own_rows() const { return make(shape.own_rows() * shape.model.hidden); }
  parallel::NormLayer norm() const {
    const bool rms = shape.model.norm == workload::Norm::rms;
    return {rms ? kernels::Norm::rms : kernels::Norm::layer, shape.own_rows(), shape.model.hidden};
  }
  parallel::NormWeights norm_weights(workload::WeightPlace norm) const {
    return {store.weight(norm.weight), norm.has_bias ? store.weight(norm.bias()) : kernels::In{}};
  }
};

// The tensors between two parts: activations and their gradient, [own rows, hidden].
struct Boundary {
  parallel::Tensor x;
  parallel::Tensor d;
};

class PartRun {
 public:
  virtual ~PartRun() = default;
  virtual void run(workload::PieceName what, schedules::Op op) = 0;
  virtual GptStage::Exchange exchange_counts(workload::PieceName /*what*/) { return {}; }
  virtual void counts_exchanged(workload::PieceName /*what*/) {}
  virtual kernels::In loads() const { return {}; }  // MixtureRun::loads()
  virtual GptStage::Exchange exchange(workload::PieceName what) = 0;
  virtual void exchanged(workload::PieceName what) = 0;
  virtual std::vector<parallel::Tensor*> kept() { return {}; }  // GptStage::kept()
};

class HeadRun : public PartRun {
 public:
  virtual const parallel::Tensor& losses() const = 0;  // one per row; without rows before they are computed
  virtual const parallel::Tensor& logits() const = 0;  // mode generate
};

// The arguments must outlive the result. The parameters of a part begin at `first`.
std::unique_ptr<PartRun> make_embedding_run(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids,
                                            Boundary& out);
// Position of a layer in its group of layers under full recomputation: the first keeps its input, and the output of the
// last is not recomputed.
struct LayerPlace {
  bool first_of_group;
  bool last_of_group;
};
std::unique_ptr<PartRun> make_layer_run(const StageContext& stage, std::int32_t part, std::size_t first,
                                        LayerPlace place, Boundary& in, Boundary& out);
// `words`: index of the parameter that is the head's matrix.
std::unique_ptr<HeadRun> make_head_run(const StageContext& stage, std::int32_t part, std::size_t first,
                                       std::size_t words, const parallel::Tensor& targets, Boundary& in);

// Gradients of a norm's gamma and beta, which the kernel of the input gradient computes. If weight gradients are pieces
// of their own, only these may touch the store (a reduction may be in flight while input gradients are computed), so
// the gradients are held until then.

class HeldNormGradients {
 public:
  // Destination of the kernel: the store, or, for op input_gradient, zeroed tensors to be held.
  parallel::NormGradients where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                workload::WeightPlace norm);
  // Adds the held gradients to the store, if there are any.
  void release(const StageContext& stage, PartGradients& into, workload::WeightPlace norm);

 private:
  parallel::Tensor held_;  // gamma's, then beta's if there is one
};

// Exchanges of rows between blocks by tensor-parallel ranks: they sum their terms and, with sequence parallelism,
// gather rows of which each has a share.

// Sum over ranks: takes this rank's term of all rows and gives the sum of its own rows. With one rank the term is the
// sum.
class RowSum {
 public:
  parallel::Tensor sum = {};

  kernels::Out begin(const StageContext& stage);         // returns the destination of the term
  kernels::InOut term() const { return term_.inout(); }  // between begin() and end()
  void end(const StageContext& stage);                   // call it after the term is written

  GptStage::Exchange exchange(const StageContext& stage);
  void exchanged(const StageContext& stage);

 private:
  parallel::Tensor term_;
};

// All rows of a tensor of which each rank has a share; if ranks have everything, no gather is needed.
class RowGather {
 public:
  const parallel::Tensor& of(const parallel::Tensor& own) const { return all_.given() ? all_ : own; }
  bool given() const { return all_.given(); }
  void reset() { all_.reset(); }

  GptStage::Exchange exchange(const StageContext& stage, const parallel::Tensor& own);

 private:
  parallel::Tensor all_;
};

}  // namespace lockstep::trainer
