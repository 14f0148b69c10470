// A linear layer whose tensor-parallel ranks form a grid (Layout::grid), on one rank: the steps of
// workload/grid_product.h as pieces of a layer or a head.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/memory/memory.h"
#include "trainer/model/part_run.h"
#include "workload/grid_product.h"

namespace lockstep::trainer {

// This rank's blocks: the input and the gradient of the output, which are given, and the results, which are made. All
// belong to the part.
struct GridEnds {
  parallel::Tensor* x;
  parallel::Tensor* y;
  parallel::Tensor* dy;
  parallel::Tensor* dx;
};

// y = x w^T + bias. A piece's turn is the index of a step in the list of its direction.
class GridLinearRun {
 public:
  // The arguments must outlive this, also what `ends` points to.
  GridLinearRun(const StageContext& stage, workload::OperationKind product, workload::WeightIndex weight,
                PartGradients& gradients, const GridEnds& ends);

  void run(workload::PieceName what);
  // True if this product is the last of its kind: its operands are not needed for another of them.
  bool is_last(workload::PieceName what) const;
  parallel::Exchange exchange(workload::PieceName what);
  void exchanged(workload::PieceName what);

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
  kernels::In own_block(workload::GridMatrix matrix) const;
  // An operand of a product: what a step has fetched, or the rank's own block.
  kernels::In operand(workload::GridMatrix matrix, std::int32_t number);
  parallel::Tensor make_panel(workload::GridMatrix matrix, core::DType dtype) const;
  parallel::Tensor& partial(workload::GridMatrix matrix, std::int32_t number, core::DType dtype);
  // The block of y, or of x's gradient; the first step that writes to it makes it.
  parallel::Tensor& result(workload::GridMatrix matrix, std::int32_t number);
  // True if this rank, among those with the same columns of y, adds the bias to the sum and counts its gradient.
  bool has_bias(const workload::GridStep& step) const;
  void multiply(const workload::GridStep& step, const kernels::Out& to);
  void add_to_block(const workload::GridStep& step);
  void weight_gradient(const workload::GridStep& step);
  void release(const workload::GridStep& step);

  const StageContext& stage_;
  const workload::GridLinear linear_;
  const workload::GridCoordinates place_;
  const workload::WeightIndex weight_;
  PartGradients& gradients_;
  const GridEnds ends_;
  const Steps forward_, backward_;
  std::array<Panels, workload::kNumGridMatrices> fetched_, partial_;  // by matrix
  parallel::Tensor f32_sum_;  // the sum of a block, if SUMMA's products add to it in another dtype
};

}  // namespace lockstep::trainer
