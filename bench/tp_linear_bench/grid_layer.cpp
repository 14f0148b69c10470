#include "bench/tp_linear_bench/grid_layer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "bench/tp_linear_bench/block.h"
#include "collectives/collective.h"
#include "core/error.h"
#include "kernels/activation/activation.h"
#include "kernels/base/context.h"
#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::tp_linear {
namespace {

using parallel::MemoryKind;
using workload::GridBlock;
using workload::GridComm;
using workload::GridForm;
using workload::GridLinear;
using workload::GridMatrix;
using workload::GridProduct;
using workload::GridStep;

constexpr std::array kMatrices{GridMatrix::x, GridMatrix::w, GridMatrix::y};

constexpr std::size_t index_of(GridMatrix matrix) {
  return static_cast<std::size_t>(matrix);
}
constexpr std::size_t index_of(Direction direction) {
  return static_cast<std::size_t>(direction);
}
constexpr std::size_t slot_of(std::int32_t number) {
  return static_cast<std::size_t>(number) % 2;
}

bool is_fetch(const GridStep& step) {
  return step.is_exchange && (step.comm == GridComm::broadcast || step.comm == GridComm::all_gather);
}

bool is_reduction(const GridStep& step) {
  return step.is_exchange && (step.comm == GridComm::reduce || step.comm == GridComm::reduce_scatter);
}

GridMatrix result_of(GridProduct product) {
  if (product == GridProduct::forward) return GridMatrix::y;
  return product == GridProduct::input_gradient ? GridMatrix::x : GridMatrix::w;
}

collectives::Kind kind_of(GridComm comm) {
  switch (comm) {
    case GridComm::broadcast:
      return collectives::Kind::broadcast;
    case GridComm::all_gather:
      return collectives::Kind::all_gather;
    case GridComm::reduce:
      return collectives::Kind::reduce;
    case GridComm::reduce_scatter:
      return collectives::Kind::reduce_scatter;
    default:
      return collectives::Kind::all_reduce;
  }
}

std::vector<std::int64_t> shape_of(const GridLinear& linear, GridMatrix matrix) {
  if (matrix == GridMatrix::w) return {linear.outputs, linear.inputs};
  return {linear.rows, matrix == GridMatrix::x ? linear.inputs : linear.outputs};
}

// Positions of the rows of a rank's block, one after the other, in the whole matrix.
Runs runs_of(const GridLinear& linear, GridMatrix matrix, int rank) {
  const GridBlock block = workload::block_of(linear, matrix, rank);
  const std::int64_t row = shape_of(linear, matrix)[1];
  return [block, row](const auto& visit) {
    for (std::int64_t r = 0; r < block.rows; ++r) {
      visit(r * block.columns, (block.first_row + r) * row + block.first_column, block.columns);
    }
  };
}

std::int64_t panel_elems(const GridLinear& linear, GridMatrix matrix) {
  return workload::panel_of(linear, matrix).elems();
}

}  // namespace

std::vector<GridLinear> linears_of(BlockKind kind, const Shape& shape, const workload::Grid& grid) {
  const GridLinear up{grid, shape.rows(), shape.hidden, shape.inner()};
  const GridLinear down{grid, shape.rows(), shape.inner(), shape.hidden, true};
  if (kind == BlockKind::column) return {up};
  if (kind == BlockKind::row) return {down};
  LOCKSTEP_CHECK(kind == BlockKind::mlp, "a linear layer or a pair of them");
  return {up, down};
}

std::array<double, 2> grid_formula_bytes_of(BlockKind kind, const Shape& shape, const workload::Grid& grid) {
  const auto size = static_cast<std::int64_t>(core::size_of(shape.dtype));
  std::array<double, 2> bytes = {};
  for (const GridLinear& linear : linears_of(kind, shape, grid)) {
    bytes[0] += static_cast<double>(workload::formula_forward_bytes(linear, size));
    bytes[1] += static_cast<double>(workload::formula_backward_bytes(linear, size));
  }
  return bytes;
}

std::int64_t grid_needed_bytes(BlockKind kind, const Shape& shape, const workload::Grid& grid) {
  // a block, its gradient, and two panels each of fetched operands and of partial sums, counted in f32
  constexpr std::int64_t kTimes = 6;
  std::int64_t elems = 0;
  for (const GridLinear& linear : linears_of(kind, shape, grid)) {
    for (const GridMatrix matrix : kMatrices) elems += panel_elems(linear, matrix);
  }
  return elems * kTimes * std::int64_t{sizeof(float)} * grid.ranks();
}

GridLayer::GridLayer(BlockKind kind, const GridSite& site) : site_(site) {
  const std::vector<GridLinear> specs = linears_of(kind, site.shape, site.grid);
  const GridLinear& first = specs.front();
  const GridLinear& last = specs.back();
  Value& x = add_value("x", first, GridMatrix::x, true);
  if (specs.size() == 1) {
    add_linear(first, x, add_value("w", first, GridMatrix::w, true), add_value("y", first, GridMatrix::y, false));
  } else {
    Value& pre = add_value("pre", first, GridMatrix::y, false);
    Value& inner = add_value("inner", last, GridMatrix::x, false);
    add_linear(first, x, add_value("up", first, GridMatrix::w, true), pre);
    add_linear(last, inner, add_value("down", last, GridMatrix::w, true), add_value("y", last, GridMatrix::y, false));
  }
  Value& y = *linears_.back().values[index_of(GridMatrix::y)];
  y.d = random(y, true);
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    if (i > 0) add_gelu(Direction::forward, *linears_[i - 1].values.back(), *linears_[i].values.front());
    add_steps(Direction::forward, linears_[i], workload::forward_steps(linears_[i].spec));
  }
  for (std::size_t i = linears_.size(); i-- > 0;) {
    add_steps(Direction::backward, linears_[i], workload::backward_steps(linears_[i].spec));
    if (i > 0) add_gelu(Direction::backward, *linears_[i - 1].values.back(), *linears_[i].values.front());
  }
}

workload::Parameter GridLayer::whole(const Value& value, bool gradient) const {
  workload::Parameter parameter{.name = gradient ? std::string("d") + value.name : value.name,
                                .shape = shape_of(value.linear, value.matrix),
                                .deviation = 1};
  // Products are about as large as their inputs.
  if (value.matrix == GridMatrix::w) parameter.deviation = 1 / std::sqrt(static_cast<float>(value.linear.inputs));
  return parameter;
}

parallel::Tensor GridLayer::random(const Value& value, bool gradient) const {
  return random_runs(site_.workspace.memory, site_.shape.dtype, whole(value, gradient),
                     workload::block_of(value.linear, value.matrix, site_.rank).elems(),
                     runs_of(value.linear, value.matrix, site_.rank));
}

GridLayer::Value& GridLayer::add_value(const char* name, const GridLinear& linear, GridMatrix matrix, bool is_given) {
  Value& value = values_.emplace_back(Value{name, linear, matrix, is_given});
  const std::int64_t elems = workload::block_of(linear, matrix, site_.rank).elems();
  parallel::Memory& memory = site_.workspace.memory;
  const bool is_weight = matrix == GridMatrix::w;
  value.x = is_given ? random(value, false) : memory.make(MemoryKind::activations, site_.shape.dtype, elems);
  value.d = is_weight ? memory.make(MemoryKind::gradients, core::DType::f32, elems)
                      : memory.make(MemoryKind::activations, site_.shape.dtype, elems);
  return value;
}

void GridLayer::add_linear(const GridLinear& spec, Value& x, Value& w, Value& y) {
  Linear& linear = linears_.emplace_back(Linear{spec, {&x, &w, &y}});
  make_panels(linear, workload::forward_steps(spec));
  make_panels(linear, workload::backward_steps(spec));
  const bool adds = spec.grid.form != GridForm::three;
  if (adds && site_.shape.dtype != core::DType::f32) {
    linear.f32_sum = site_.workspace.memory.make(MemoryKind::buffers, core::DType::f32, y.x.elems());
  }
}

void GridLayer::make_panels(Linear& linear, const Steps& steps) const {
  for (const GridStep& step : steps) {
    if (!is_fetch(step) && !is_reduction(step)) continue;
    parallel::Tensor& panel =
        (is_fetch(step) ? linear.fetched : linear.partial)[index_of(step.matrix)].tensors[slot_of(step.number)];
    if (panel.given()) continue;
    const bool is_sum_of_weights = is_reduction(step) && step.matrix == GridMatrix::w;
    panel = site_.workspace.memory.make(MemoryKind::buffers, is_sum_of_weights ? core::DType::f32 : site_.shape.dtype,
                                        panel_elems(linear.spec, step.matrix));
  }
}

void GridLayer::add_steps(Direction direction, Linear& linear, const Steps& steps) {
  for (Panels& panels : linear.fetched) panels.last_exchange = {kNothing, kNothing};
  for (Panels& panels : linear.partial) panels.last_exchange = {kNothing, kNothing};
  for (const GridStep& step : steps) {
    if (step.is_exchange) {
      add_exchange(direction, linear, step);
    } else {
      add_product(direction, linear, step, steps);
    }
  }
}

// An exchange waits for all kernels before it, which have produced its data or used the memory that it overwrites.
void GridLayer::add_exchange(Direction direction, Linear& linear, const GridStep& step) {
  Exchanger* const exchanger = site_.exchangers[static_cast<std::size_t>(step.axis)];
  LOCKSTEP_CHECK(exchanger != nullptr, "the rank is in a group of several ranks");
  Value& value = *linear.values[index_of(step.matrix)];
  const bool is_gradient = direction == Direction::backward && (!is_fetch(step) || step.matrix == GridMatrix::y);
  const parallel::Tensor& block = is_gradient ? value.d : value.x;
  Panels& panels = (is_fetch(step) ? linear.fetched : linear.partial)[index_of(step.matrix)];
  const parallel::Tensor& panel = panels.tensors[slot_of(step.number)];
  const bool is_in_place = step.comm == GridComm::all_reduce;
  const collectives::Operation operation{.kind = kind_of(step.comm),
                                         .count = block.elems(),
                                         .dtype = block.dtype(),
                                         .root = step.root,
                                         .in_place = is_in_place};
  const parallel::Tensor& from = is_fetch(step) || is_in_place ? block : panel;
  const parallel::Tensor& to = is_fetch(step) ? panel : block;
  last_exchange_[index_of(direction)] = of(direction).add(
      TaskKind::exchange, exchanger->make(operation, from.data(), to.data()), last_kernel_[index_of(direction)]);
  if (!is_in_place) panels.last_exchange[slot_of(step.number)] = last_exchange_[index_of(direction)];
}

const parallel::Tensor& GridLayer::operand(const Linear& linear, GridMatrix matrix, std::int32_t number,
                                           bool gradient) const {
  const Panels& panels = linear.fetched[index_of(matrix)];
  if (panels.last_exchange[slot_of(number)] != kNothing) return panels.tensors[slot_of(number)];
  const Value& value = *linear.values[index_of(matrix)];
  return gradient ? value.d : value.x;
}

// A product waits for its fetched operands, and for the reduction that last read the memory that it overwrites.
void GridLayer::add_product(Direction direction, Linear& linear, const GridStep& step, const Steps& steps) {
  int after = linear.partial[index_of(result_of(step.product))].last_exchange[slot_of(step.number)];
  for (const GridMatrix matrix : kMatrices) {
    if (matrix == result_of(step.product)) continue;
    after = std::max(after, linear.fetched[index_of(matrix)].last_exchange[slot_of(step.number)]);
  }
  const auto is_later_product = [&](const GridStep& other) {
    return !other.is_exchange && other.product == step.product && other.number > step.number;
  };
  const bool is_last = std::none_of(steps.begin(), steps.end(), is_later_product);
  add_kernel(
      direction, TaskKind::product, after,
      step.product == GridProduct::forward ? forward_product(linear, step, is_last) : gradient_product(linear, step));
}

std::function<void()> GridLayer::forward_product(Linear& linear, const GridStep& step, bool is_last) {
  const workload::GridBlock y = workload::panel_of(linear.spec, GridMatrix::y);
  const parallel::Tensor& x = operand(linear, GridMatrix::x, step.number, false);
  const parallel::Tensor& w = operand(linear, GridMatrix::w, step.number, false);
  const std::int64_t inputs = workload::panel_of(linear.spec, GridMatrix::x).columns;
  const kernels::Context& where = site_.workspace.where;
  const Value& value = *linear.values[index_of(GridMatrix::y)];
  const parallel::Tensor& partial = linear.partial[index_of(GridMatrix::y)].tensors[slot_of(step.number)];
  if (partial.given()) {
    const kernels::GemmForward call{.shape = {y.rows, inputs, y.columns}, .x = x.in(), .w = w.in(), .y = partial.out()};
    return [call, where] { kernels::run(call, where); };
  }
  const parallel::Tensor& sum = linear.f32_sum.given() ? linear.f32_sum : value.x;
  const kernels::GemmBatched call{.batch = 1,
                                  .m = y.rows,
                                  .n = y.columns,
                                  .k = inputs,
                                  .transpose_b = true,
                                  .adds = true,
                                  .a = x.in(),
                                  .b = w.in(),
                                  .sum = sum.inout()};
  const kernels::Cast rounding{
      .count = sum.elems(), .from = core::DType::f32, .to = value.x.dtype(), .x = sum.in(), .y = value.x.out()};
  const bool rounds = is_last && linear.f32_sum.given();
  core::Device& device = site_.workspace.memory.device();
  return [call, rounding, rounds, where, &device, is_first = step.number == 0] {
    if (is_first) parallel::set_zero(device, where, {call.sum.data, call.sum.dtype, call.sum.elems});
    kernels::run(call, where);
    if (rounds) kernels::run(rounding, where);
  };
}

std::function<void()> GridLayer::gradient_product(Linear& linear, const GridStep& step) {
  const GridMatrix result = result_of(step.product);
  const workload::GridBlock w = workload::panel_of(linear.spec, GridMatrix::w);
  const kernels::GemmShape shape{workload::panel_of(linear.spec, GridMatrix::y).rows, w.columns, w.rows};
  const parallel::Tensor& dy = operand(linear, GridMatrix::y, step.number, true);
  const parallel::Tensor& partial = linear.partial[index_of(result)].tensors[slot_of(step.number)];
  const parallel::Tensor& to = partial.given() ? partial : linear.values[index_of(result)]->d;
  const kernels::Context& where = site_.workspace.where;
  if (step.product == GridProduct::input_gradient) {
    const kernels::GemmInputGradient call{
        .shape = shape, .dy = dy.in(), .w = operand(linear, GridMatrix::w, step.number, false).in(), .dx = to.out()};
    return [call, where] { kernels::run(call, where); };
  }
  const kernels::GemmWeightGradient call{
      .shape = shape, .x = operand(linear, GridMatrix::x, step.number, false).in(), .dy = dy.in(), .dw = to.inout()};
  core::Device& device = site_.workspace.memory.device();
  return [call, where, &device] {
    parallel::set_zero(device, where, {call.dw.data, call.dw.dtype, call.dw.elems});
    kernels::run(call, where);
  };
}

void GridLayer::add_gelu(Direction direction, Value& in, Value& out) {
  const kernels::Context& where = site_.workspace.where;
  const kernels::GeluForward forward{.count = in.x.elems(), .x = in.x.in(), .y = out.x.out()};
  const kernels::GeluBackward backward{.count = in.x.elems(), .x = in.x.in(), .dy = out.d.in(), .dx = in.d.out()};
  add_kernel(direction, TaskKind::other_kernel, last_exchange_[index_of(direction)],
             [forward, backward, where, is_forward = direction == Direction::forward] {
               is_forward ? kernels::run(forward, where) : kernels::run(backward, where);
             });
}

void GridLayer::add_kernel(Direction direction, TaskKind kind, int after, std::function<void()> run) {
  last_kernel_[index_of(direction)] = of(direction).add(kind, std::move(run), after);
}

void GridLayer::reset() {
  const auto spoil = [&](const parallel::Tensor& tensor) {
    if (tensor.given()) set_bytes(site_.workspace.memory, tensor, kSpoilt);
  };
  for (const Value& value : values_) {
    if (!value.is_given) spoil(value.x);
    if (&value != linears_.back().values[index_of(GridMatrix::y)]) spoil(value.d);
  }
  for (const Linear& linear : linears_) {
    spoil(linear.f32_sum);
    for (const auto& all : {&linear.fetched, &linear.partial}) {
      for (const Panels& panels : *all) std::for_each(panels.tensors.begin(), panels.tensors.end(), spoil);
    }
  }
}

std::vector<Result> GridLayer::results() const {
  std::vector<Result> results;
  const auto add = [&](const Value& value, bool gradient) {
    results.push_back({.whole = whole(value, gradient),
                       .found = gradient ? &value.d : &value.x,
                       .runs = runs_of(value.linear, value.matrix, site_.rank)});
  };
  add(*linears_.back().values[index_of(GridMatrix::y)], false);
  for (const Value& value : values_) {
    const bool is_first = value.matrix == GridMatrix::x && value.is_given;
    if (is_first || value.matrix == GridMatrix::w) add(value, true);
  }
  return results;
}

}  // namespace lockstep::tp_linear
