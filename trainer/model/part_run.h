// A part of a stage (embedding, layer, head) working on one microbatch: the computation of its pieces and the tensors
// that it keeps between them. Kernels and exchanges may be called from different threads, but never two that touch the
// same memory. Also what its pieces share: the state of a stage beside its weights (scaling history of 8-bit floats,
// biases of routers), gradients of norms, and exchanges of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/view.h"
#include "parallel/context/context_attention.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

// State of delayed scaling of 8-bit floats for the layers of a stage: the largest element of each encoded tensor in the
// previous training steps, and so far in this one, over its microbatches. Scales come from the largest of the last
// fp8_history steps (the Transformer Engine's recipe DelayedScaling with amax_compute_algo "max"; its history has
// 1,024).

class Fp8History {
 public:
  Fp8History(const workload::Layout& layout, std::int64_t parts, const parallel::Workspace& workspace);

  parallel::Fp8Scaling of_part(std::int64_t part) const;
  // Called in the order of the kernels. After a step that does not train, its maxima are discarded.
  void end_step(bool trained, const parallel::Workspace& workspace);

  // The previous steps, for a checkpoint: [numbers, steps], the latest step last; empty without delayed scaling.
  std::vector<float> steps(const parallel::Workspace& workspace) const;
  void set_steps(std::span<const float> steps, const parallel::Workspace& workspace);

 private:
  void find_previous(const kernels::Context& where) const;

  std::optional<kernels::Fp8Recipe> recipe_;
  std::int64_t numbers_;  // parts x linear layers x kFp8Tensors
  std::int64_t length_;   // steps
  // f32; empty without delayed scaling.
  parallel::Tensor history_;   // [numbers, steps]
  parallel::Tensor previous_;  // [numbers], the largest of each row
  parallel::Tensor raised_;    // [numbers], of this step
  parallel::Tensor shifted_;   // [numbers, steps - 1], of end_step()
  // Other outputs of encoding the history.
  parallel::Tensor scales_;  // [numbers]
  parallel::Tensor codes_;   // [numbers, steps]
};

// Loss-free balancing of a mixture's experts (Wang et al. 2024, arXiv:2408.15664, algorithm 1; DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2): a bias added to the scores for the choice of experts, which each step raises for
// experts with fewer tokens than the mean and lowers for those with more. Tokens of all ranks count, so that all ranks
// with a layer have the same bias.

// Biases by part of a stage; only layers use theirs.
class RouterBias {
 public:
  RouterBias(const workload::Model& model, std::int64_t parts, const parallel::Workspace& workspace);

  kernels::In of_part(std::int64_t part) const;  // [experts] f32; empty without balancing
  // After a step: takes the tokens per expert in it.
  void balance(std::int64_t part, std::span<const std::int64_t> loads, const parallel::Workspace& workspace);

  // For a checkpoint: [experts], or empty without balancing.
  std::vector<float> values(std::int64_t part) const;
  void set_values(std::int64_t part, std::span<const float> values, const parallel::Workspace& workspace);

 private:
  void to_device(std::int64_t part, const parallel::Workspace& workspace) const;

  std::int64_t experts_;
  float rate_;
  std::vector<float> values_;  // [part][expert]
  parallel::Tensor on_device_;
};

using PartGradients = parallel::ParameterStore::PartGradients;

// State that the parts of all microbatches share, or those of one slice of each.
struct StageContext {
  GptShape shape;
  parallel::ParameterStore& store;
  parallel::Workspace workspace;
  Fp8History& fp8;
  RouterBias& router_bias;
  Mode mode = Mode::train;
  float gradient_scale = 1;
  std::shared_ptr<const parallel::ContextPlan> context = nullptr;  // for attention on several context-parallel ranks

  parallel::Tensor make(std::int64_t elems) const {  // in the compute dtype
    return workspace.memory.make(parallel::MemoryKind::activations, shape.layout.compute, elems);
  }
  parallel::Tensor make_own_rows() const { return make(shape.own_rows() * shape.own_columns()); }
  // The rows that a piece works on: all of them, or a tile (GptShape::row_tiles).
  parallel::RowTile rows_of(workload::PieceName what) const {
    if (shape.row_tiles == 1 || what.turn == 0) return {};
    return {what.turn - 1, shape.row_tiles};
  }
  parallel::NormWeights norm_weights(workload::WeightIndex norm) const {
    return {store.weight(norm.weight), norm.has_bias ? store.weight(norm.bias()) : kernels::In{}};
  }
};

// The tensors between two parts: activations and their gradient, [own rows, own columns].
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
  virtual GptStage::BlockEnds ends_of(GptStage::Block /*block*/) { return {}; }
  virtual parallel::EarlierSlice slice() { return {}; }  // layers: for later slices of their sequences
};

class HeadRun : public PartRun {
 public:
  virtual const parallel::Tensor& losses() const = 0;  // one per row; without rows before they are computed
  virtual const parallel::Tensor& logits() const = 0;  // mode generate
};

// The arguments must outlive the result. The parameters of a part begin at `first`.
std::unique_ptr<PartRun> make_embedding_run(const StageContext& stage, std::int32_t part, const parallel::Tensor& ids,
                                            Boundary& out);
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
                                workload::WeightIndex norm);
  // Adds the held gradients to the store, if there are any.
  void release(const StageContext& stage, PartGradients& into, workload::WeightIndex norm);

 private:
  parallel::Tensor held_;  // gamma's, then beta's if there is one
};

// A norm as its pieces run it: one, or two of ranks in a grid, which sum the numbers of a row between them.

class NormRun {
 public:
  // The layer of a piece. Call ends() after the piece.
  parallel::NormLayer begin(const StageContext& stage, workload::PieceName what);
  // True if the norm is complete.
  bool ends(const parallel::NormLayer& piece);
  GptStage::Exchange exchange() const { return {sums_.in(), sums_.out()}; }

 private:
  parallel::Tensor sums_;
};

// Exchanges of rows between blocks by tensor-parallel ranks: they sum their terms and, with sequence parallelism,
// gather rows of which each has a share.
//
// Rows may be cut into tiles, so that the exchange of one tile overlaps with the product of another. Without sequence
// parallelism a tile is a run of rows. With it a tile has the same number of rows of each rank's share, so that a
// reduce-scatter leaves every rank with the next rows of its own share, and a gather collects rows from all. Within
// tensor-parallel layers rows are then in tile order, so that a tile is one product: 2 ranks, 2 tiles, 8 rows:
//
//   row            0 1 2 3 | 4 5 6 7      of rank 0 | of rank 1
//   in this order  0 1 4 5 | 2 3 6 7      tile 0 | tile 1

// All rows of a matrix in the order in which they come, and in tile order; empty if that is the same order.
parallel::Tensor in_row_order(const StageContext& stage, const parallel::Tensor& in_tiles);
parallel::Tensor in_tile_order(const StageContext& stage, const parallel::Tensor& in_rows);

// Sum over ranks: takes this rank's term of all rows and gives the sum of its own rows. With one rank the term is the
// sum. Tiles come in ascending order. (On a grid: over the ranks of an embedding, which have as many columns of as many
// rows.)
class RowSum {
 public:
  parallel::Tensor sum = {};

  // Returns the destination of the term.
  kernels::Out begin(const StageContext& stage, const parallel::RowTile& tile = {});
  kernels::InOut term() const { return term_.inout(); }  // between begin() and end()
  // Call it after the term is written.
  void end(const StageContext& stage, const parallel::RowTile& tile = {});

  GptStage::Exchange exchange(const StageContext& stage, const parallel::RowTile& tile = {});
  void exchanged(const StageContext& stage, const parallel::RowTile& tile = {});

 private:
  parallel::Tensor term_;
};

// All rows of a tensor of which each rank has a share; if ranks have everything, no gather is needed.
class RowGather {
 public:
  const parallel::Tensor& of(const parallel::Tensor& own) const { return all_.given() ? all_ : own; }
  bool given() const { return all_.given(); }
  void reset() { all_.reset(); }

  GptStage::Exchange exchange(const StageContext& stage, const parallel::Tensor& own,
                              const parallel::RowTile& tile = {});

 private:
  parallel::Tensor all_;
};

}  // namespace lockstep::trainer
