#include "trainer/model/grid_run.h"

#include <utility>

#include "core/error.h"
#include "kernels/activation/activation.h"
#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::trainer {

using parallel::MemoryKind;
using schedules::Comm;
using workload::GridMatrix;
using workload::GridProduct;
using workload::GridStep;
using workload::PieceName;
using workload::Side;
using Kind = workload::OperationKind;

GridLinearRun::GridLinearRun(const StageContext& stage, Kind product, std::size_t weight, PartGradients& gradients)
    : stage_(stage),
      linear_(grid_linear(stage.shape.model, stage.shape.layout, product)),
      weight_(weight),
      gradients_(gradients),
      forward_(forward_steps(linear_)),
      backward_(backward_steps(linear_)) {}

parallel::Tensor GridLinearRun::make_panel(GridMatrix matrix, core::DType dtype) const {
  return stage_.workspace.memory.make(MemoryKind::buffers, dtype, panel_of(linear_, matrix).elems());
}

void GridLinearRun::make(parallel::Tensor& block, GridMatrix matrix) const {
  if (!block.given()) block = stage_.make(block_of(linear_, matrix, stage_.shape.tensor.index).elems());
}

kernels::In GridLinearRun::operand(GridMatrix matrix, std::int32_t number) {
  if (const parallel::Tensor& fetched = panel(fetched_, matrix, number); fetched.given()) return fetched.in();
  return matrix == GridMatrix::w ? stage_.store.weight(weight_) : (matrix == GridMatrix::x ? x : dy).in();
}

parallel::Exchange GridLinearRun::exchange(PieceName what) {
  const GridStep& step = steps_of(what)[what.turn];
  if (step.comm == Comm::all_reduce) {
    const kernels::InOut dw = gradients_.of(weight_);
    return {.input = dw.in(), .output = dw.out()};
  }
  if (step.comm == Comm::broadcast || step.comm == Comm::all_gather) {
    parallel::Tensor& to = panel(fetched_, step.matrix, step.number);
    if (!to.given()) to = make_panel(step.matrix, stage_.shape.layout.compute);
    const kernels::In block =
        step.matrix == GridMatrix::w ? stage_.store.weight(weight_) : (step.matrix == GridMatrix::x ? x : dy).in();
    return {.input = block, .output = to.out(), .root = step.root};
  }
  const kernels::In sum = panel(partial_, step.matrix, step.number).in();
  if (step.matrix == GridMatrix::w) return {.input = sum, .output = gradients_.of(weight_).out(), .root = step.root};
  parallel::Tensor& to = step.matrix == GridMatrix::x ? dx : y;
  make(to, step.matrix);
  return {.input = sum, .output = to.out(), .root = step.root};
}

void GridLinearRun::run(PieceName what) {
  const GridStep& step = steps_of(what)[what.turn];
  const workload::GridBlock w = panel_of(linear_, GridMatrix::w);
  const kernels::GemmShape shape{panel_of(linear_, GridMatrix::y).rows, w.columns, w.rows};
  const kernels::Context& where = stage_.workspace.where;
  const auto partial = [&](GridMatrix matrix, core::DType dtype) -> parallel::Tensor& {
    parallel::Tensor& sum = panel(partial_, matrix, step.number);
    if (!sum.given()) sum = make_panel(matrix, dtype);
    return sum;
  };
  const auto of = [&](GridMatrix matrix) { return operand(matrix, step.number); };
  const core::DType dtype = stage_.shape.layout.compute;
  switch (step.product) {
    case GridProduct::input_gradient:
      return kernels::run(kernels::GemmInputGradient{.shape = shape,
                                                     .dy = of(GridMatrix::y),
                                                     .w = of(GridMatrix::w),
                                                     .dx = partial(GridMatrix::x, dtype).out()},
                          where);
    case GridProduct::weight_gradient: {
      const parallel::Tensor& dw = partial(GridMatrix::w, core::DType::f32);
      parallel::set_zero(stage_.workspace.memory.device(), where, dw.out());
      return kernels::run(
          kernels::GemmWeightGradient{
              .shape = shape, .x = of(GridMatrix::x), .dy = of(GridMatrix::y), .dw = dw.inout()},
          where);
    }
    default:
      if (linear_.grid.form != workload::GridForm::three) return add_to_y(step);
      kernels::run(
          kernels::GemmForward{
              .shape = shape, .x = of(GridMatrix::x), .w = of(GridMatrix::w), .y = partial(GridMatrix::y, dtype).out()},
          where);
  }
}

void GridLinearRun::add_to_y(const GridStep& step) {
  const workload::GridBlock block = panel_of(linear_, GridMatrix::y);
  const kernels::Context& where = stage_.workspace.where;
  make(y, GridMatrix::y);
  const bool rounds = y.dtype() != core::DType::f32;
  if (rounds && !f32_sum_.given()) {
    f32_sum_ = stage_.workspace.memory.make(MemoryKind::buffers, core::DType::f32, y.elems());
  }
  const parallel::Tensor& sum = rounds ? f32_sum_ : y;
  if (step.number == 0) parallel::set_zero(stage_.workspace.memory.device(), where, sum.out());
  kernels::run(kernels::GemmBatched{.batch = 1,
                                    .m = block.rows,
                                    .n = block.columns,
                                    .k = panel_of(linear_, GridMatrix::x).columns,
                                    .transpose_b = true,
                                    .adds = true,
                                    .a = operand(GridMatrix::x, step.number),
                                    .b = operand(GridMatrix::w, step.number),
                                    .sum = sum.inout()},
               where);
  if (!rounds || step.number + 1 < linear_.grid.side) return;
  kernels::run(
      kernels::Cast{.count = sum.elems(), .from = core::DType::f32, .to = y.dtype(), .x = sum.in(), .y = y.out()},
      where);
}

GridMlpRun::GridMlpRun(const StageContext& stage, std::int32_t part, std::size_t first)
    : stage_(stage),
      gradients_(stage.store.gradients(part)),
      up_(stage, Kind::up, first + workload::LayerIndices(stage.shape.model).up.weight, gradients_),
      down_(stage, Kind::down, first + workload::LayerIndices(stage.shape.model).down.weight, gradients_) {}

GridLinearRun& GridMlpRun::layer_of(PieceName what) {
  LOCKSTEP_CHECK(what.kind == Kind::up || what.kind == Kind::down, "a linear layer of an MLP");
  return what.kind == Kind::up ? up_ : down_;
}

void GridMlpRun::run(PieceName what, schedules::Op /*op*/) {
  if (what.kind != Kind::activation) return layer_of(what).run(what);
  const kernels::Context& where = stage_.workspace.where;
  if (what.side == Side::forward) {
    down_.x = stage_.make(up_.y.elems());
    return kernels::run(kernels::GeluForward{.count = up_.y.elems(), .x = up_.y.in(), .y = down_.x.out()}, where);
  }
  up_.dy = stage_.make(up_.y.elems());
  kernels::run(kernels::GeluBackward{.count = up_.y.elems(), .x = up_.y.in(), .dy = down_.dx.in(), .dx = up_.dy.out()},
               where);
}

GptStage::Exchange GridMlpRun::exchange(PieceName what) {
  return layer_of(what).exchange(what);
}

GptStage::BlockEnds GridMlpRun::ends_of(GptStage::Block block) {
  GridLinearRun& first = block == GptStage::Block::down ? down_ : up_;
  GridLinearRun& last = block == GptStage::Block::up ? up_ : down_;
  return {&first.x, &last.dy, [&last] { return last.y.in(); }, &first.dx};
}

}  // namespace lockstep::trainer
