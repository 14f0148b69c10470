#include "trainer/model/grid_run.h"

#include <algorithm>

#include "kernels/cast/cast.h"
#include "kernels/copy/copy.h"
#include "kernels/gemm/gemm.h"
#include "parallel/parameters/device_memory.h"
#include "workload/operations.h"

namespace lockstep::trainer {

using parallel::MemoryKind;
using schedules::Comm;
using schedules::GroupKind;
using workload::GridForm;
using workload::GridMatrix;
using workload::GridProduct;
using workload::GridStep;
using workload::PieceName;

GridLinearRun::GridLinearRun(const StageContext& stage, workload::OperationKind product, workload::WeightIndex weight,
                             PartGradients& gradients, const GridEnds& ends)
    : stage_(stage),
      linear_(grid_linear(stage.shape.model, stage.shape.layout, product)),
      place_(place_of(linear_.grid, stage.shape.tensor.index)),
      weight_(weight),
      gradients_(gradients),
      ends_(ends),
      forward_(forward_steps(linear_)),
      backward_(backward_steps(linear_)) {}

kernels::In GridLinearRun::own_block(GridMatrix matrix) const {
  if (matrix == GridMatrix::w) return stage_.store.weight(weight_.weight);
  return (matrix == GridMatrix::x ? ends_.x : ends_.dy)->in();
}

kernels::In GridLinearRun::operand(GridMatrix matrix, std::int32_t number) {
  const parallel::Tensor& fetched = panel(fetched_, matrix, number);
  return fetched.given() ? fetched.in() : own_block(matrix);
}

parallel::Tensor GridLinearRun::make_panel(GridMatrix matrix, core::DType dtype) const {
  return stage_.workspace.memory.make(MemoryKind::buffers, dtype, panel_of(linear_, matrix).elems());
}

parallel::Tensor& GridLinearRun::partial(GridMatrix matrix, std::int32_t number, core::DType dtype) {
  parallel::Tensor& sum = panel(partial_, matrix, number);
  sum = make_panel(matrix, dtype);
  return sum;
}

parallel::Tensor& GridLinearRun::result(GridMatrix matrix, std::int32_t number) {
  parallel::Tensor& block = matrix == GridMatrix::x ? *ends_.dx : *ends_.y;
  if (number == 0) block = stage_.make(block_of(linear_, matrix, stage_.shape.tensor.index).elems());
  return block;
}

bool GridLinearRun::is_last(PieceName what) const {
  const Steps& steps = steps_of(what);
  const auto at = steps.begin() + what.turn;
  return std::none_of(at + 1, steps.end(),
                      [&](const GridStep& step) { return !step.is_exchange() && step.product == at->product; });
}

parallel::Exchange GridLinearRun::exchange(PieceName what) {
  const GridStep& step = steps_of(what)[what.turn];
  if (step.comm == Comm::all_reduce) {
    const kernels::InOut dw = gradients_.of(weight_.weight);
    return {.input = dw.in(), .output = dw.out()};
  }
  if (step.is_fetch()) {
    parallel::Tensor& to = panel(fetched_, step.matrix, step.number);
    to = make_panel(step.matrix, stage_.shape.layout.compute);
    return {.input = own_block(step.matrix), .output = to.out(), .root = step.root};
  }
  const kernels::In sum = panel(partial_, step.matrix, step.number).in();
  if (step.matrix != GridMatrix::w)
    return {.input = sum, .output = result(step.matrix, step.number).out(), .root = step.root};
  return {.input = sum, .output = gradients_.of(weight_.weight).out(), .root = step.root};
}

void GridLinearRun::exchanged(PieceName what) {
  const GridStep& step = steps_of(what)[what.turn];
  if (!step.is_fetch()) panel(partial_, step.matrix, step.number).reset();
}

void GridLinearRun::run(PieceName what) {
  const GridStep& step = steps_of(what)[what.turn];
  if (step.product == GridProduct::weight_gradient) {
    weight_gradient(step);
  } else if (is_local_sum(linear_, step.product)) {
    add_to_block(step);
  } else {
    multiply(step, partial(made_by(step.product), step.number, stage_.shape.layout.compute).out());
  }
  release(step);
}

// In three dimensions the gathered gradient of y serves both products.
void GridLinearRun::release(const GridStep& step) {
  const bool keeps_dy = linear_.grid.form == GridForm::three && step.product == GridProduct::input_gradient;
  for (const GridMatrix matrix : {GridMatrix::x, GridMatrix::w, GridMatrix::y}) {
    const bool is_operand_of_later = step.product == GridProduct::input_gradient && matrix == GridMatrix::x;
    if ((keeps_dy && matrix == GridMatrix::y) || is_operand_of_later) continue;
    panel(fetched_, matrix, step.number).reset();
  }
}

bool GridLinearRun::has_bias(const GridStep& step) const {
  if (!weight_.has_bias || step.number > 0) return false;
  return linear_.grid.form != GridForm::three || place_.along(axis_of_columns(linear_, GridMatrix::x)) == 0;
}

void GridLinearRun::multiply(const GridStep& step, const kernels::Out& to) {
  const workload::GridBlock w = panel_of(linear_, GridMatrix::w);
  const kernels::GemmShape shape{panel_of(linear_, GridMatrix::y).rows, w.columns, w.rows};
  const kernels::Context& where = stage_.workspace.where;
  const kernels::In weight = operand(GridMatrix::w, step.number);
  if (step.product == GridProduct::input_gradient) {
    return kernels::run(
        kernels::GemmInputGradient{.shape = shape, .dy = operand(GridMatrix::y, step.number), .w = weight, .dx = to},
        where);
  }
  const bool adds_bias = has_bias(step);
  kernels::run(kernels::GemmForward{.shape = shape,
                                    .epilogue = adds_bias ? kernels::Epilogue::bias : kernels::Epilogue::none,
                                    .x = operand(GridMatrix::x, step.number),
                                    .w = weight,
                                    .bias = adds_bias ? stage_.store.weight(weight_.bias()) : kernels::In{},
                                    .y = to},
               where);
}

// The first product is written, the others are added.
void GridLinearRun::add_to_block(const GridStep& step) {
  const bool forward = step.product == GridProduct::forward;
  const kernels::Context& where = stage_.workspace.where;
  const parallel::Tensor& block = result(made_by(step.product), step.number);
  const bool rounds = block.dtype() != core::DType::f32;
  const auto cast = [&](const parallel::Tensor& from, const parallel::Tensor& to) {
    kernels::run(
        kernels::Cast{.count = from.elems(), .from = from.dtype(), .to = to.dtype(), .x = from.in(), .y = to.out()},
        where);
  };
  if (step.number == 0) {
    multiply(step, block.out());
    if (!rounds) return;
    f32_sum_ = stage_.workspace.memory.make(MemoryKind::buffers, core::DType::f32, block.elems());
    return cast(block, f32_sum_);
  }
  const workload::GridBlock w = panel_of(linear_, GridMatrix::w);
  kernels::run(kernels::GemmBatched{.batch = 1,
                                    .m = panel_of(linear_, GridMatrix::y).rows,
                                    .n = forward ? w.rows : w.columns,
                                    .k = forward ? w.columns : w.rows,
                                    .transpose_b = forward,
                                    .adds = true,
                                    .a = operand(forward ? GridMatrix::x : GridMatrix::y, step.number),
                                    .b = operand(GridMatrix::w, step.number),
                                    .sum = (rounds ? f32_sum_ : block).inout()},
               where);
  if (!rounds || step.number + 1 < linear_.grid.side) return;
  cast(f32_sum_, block);
  f32_sum_.reset();
}

// The owner of a block of the gradient begins its term with the gradient so far, which the sum then replaces; of
// several owners the first.
void GridLinearRun::weight_gradient(const GridStep& step) {
  const workload::GridBlock w = panel_of(linear_, GridMatrix::w);
  const kernels::Context& where = stage_.workspace.where;
  const parallel::Tensor& dw = partial(GridMatrix::w, step.number, core::DType::f32);
  parallel::set_zero(stage_.workspace.memory.device(), where, dw.out());
  const kernels::InOut so_far = gradients_.of(weight_.weight);
  const bool is_three = linear_.grid.form == GridForm::three;
  const std::int32_t index = place_.along(GroupKind::tensor_column);
  if (is_three || (index == step.number && place_.layer == 0)) {
    kernels::CopyRows copy{1, so_far.elems};
    copy.from = so_far.in();
    copy.to = dw.out(is_three ? index * so_far.elems : 0, so_far.elems);
    kernels::run(copy, where);
  }
  const bool opens_bias = weight_.has_bias && step.number == 0;  // on all ranks, so that they hold as much memory
  const kernels::InOut dbias = opens_bias ? gradients_.of(weight_.bias()) : kernels::InOut{};
  kernels::run(kernels::GemmWeightGradient{.shape = {panel_of(linear_, GridMatrix::y).rows, w.columns, w.rows},
                                           .with_bias = has_bias(step),
                                           .x = operand(GridMatrix::x, step.number),
                                           .dy = operand(GridMatrix::y, step.number),
                                           .dw = dw.inout(),
                                           .dbias = has_bias(step) ? dbias : kernels::InOut{}},
               where);
}

}  // namespace lockstep::trainer
