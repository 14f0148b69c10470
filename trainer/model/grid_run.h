// The linear layers of an MLP whose tensor-parallel ranks form a grid (Layout::grid), on one rank: the steps of
// workload/grid_product.h as pieces. There are no norms, embedding and loss over a grid: only benchmarks run it, for
// one microbatch in a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/memory/memory.h"
#include "trainer/model/part_run.h"
#include "workload/grid_product.h"

namespace lockstep::trainer {

// One layer, y = x w^T, without a bias. A piece's turn is the index of a step in the list of its direction.
class GridLinearRun {
 public:
  GridLinearRun(const StageContext& stage, workload::OperationKind product, std::size_t weight,
                PartGradients& gradients);

  // This rank's blocks: the input and the gradient of the output, which are given, and the results.
  parallel::Tensor x = {}, dy = {};
  parallel::Tensor y = {}, dx = {};

  void run(workload::PieceName what);
  parallel::Exchange exchange(workload::PieceName what);

 private:
  using Steps = std::vector<workload::GridStep>;
  // Panels that are fetched for a product, or its result before a reduction: two, so that one is in flight while the
  // other is used.
  using Panels = std::array<parallel::Tensor, 2>;

  const Steps& steps_of(workload::PieceName what) const {
    return what.side == workload::Side::forward ? forward_ : backward_;
  }
  parallel::Tensor& panel(std::array<Panels, workload::kNumGridMatrices>& of, workload::GridMatrix matrix,
                          std::int32_t number) {
    return of[static_cast<std::size_t>(matrix)][static_cast<std::size_t>(number) % 2];
  }
  // An operand of a product: what a step has fetched, or the rank's own block.
  kernels::In operand(workload::GridMatrix matrix, std::int32_t number);
  parallel::Tensor make_panel(workload::GridMatrix matrix, core::DType dtype) const;
  void make(parallel::Tensor& block, workload::GridMatrix matrix) const;
  void add_to_y(const workload::GridStep& step);

  const StageContext& stage_;
  const workload::GridLinear linear_;
  const std::size_t weight_;
  PartGradients& gradients_;
  const Steps forward_, backward_;
  std::array<Panels, workload::kNumGridMatrices> fetched_, partial_;  // by matrix
  parallel::Tensor f32_sum_;  // the sum y, if SUMMA's products add to it in another dtype
};

// The pair of an MLP with GELU between its layers; or one of them, whose ends are then put there.
class GridMlpRun final : public PartRun {
 public:
  GridMlpRun(const StageContext& stage, std::int32_t part, std::size_t first);

  void run(workload::PieceName what, schedules::Op op) override;
  GptStage::Exchange exchange(workload::PieceName what) override;
  void exchanged(workload::PieceName /*what*/) override {}
  GptStage::BlockEnds ends_of(GptStage::Block block) override;

 private:
  GridLinearRun& layer_of(workload::PieceName what);

  const StageContext& stage_;
  PartGradients gradients_;
  GridLinearRun up_, down_;
};

}  // namespace lockstep::trainer
