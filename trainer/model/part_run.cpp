#include "trainer/model/part_run.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/copy/copy.h"
#include "kernels/fp8/fp8.h"
#include "kernels/residual/residual.h"
#include "parallel/layers/layers.h"
#include "parallel/parameters/device_memory.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

// ---- the state of a stage beside its weights

namespace {

constexpr std::int64_t kPerPart = workload::kFp8LinearLayers * parallel::kFp8Tensors;

// Copies columns of an f32 matrix.
void copy_columns(const kernels::Context& where, std::int64_t rows, std::int64_t columns, const parallel::Tensor& from,
                  std::int64_t from_first, const parallel::Tensor& to, std::int64_t to_first) {
  kernels::CopyRows copy{
      .rows = rows, .columns = columns, .from_stride = from.elems() / rows, .to_stride = to.elems() / rows};
  copy.from = from.in(from_first, (rows - 1) * copy.from_stride + columns);
  copy.to = to.out(to_first, (rows - 1) * copy.to_stride + columns);
  kernels::run(copy, where);
}

}  // namespace

Fp8History::Fp8History(const workload::Layout& layout, std::int64_t parts, const parallel::Workspace& workspace)
    : recipe_(fp8_recipe_of(layout)), numbers_(parts * kPerPart), length_(layout.fp8_history) {
  if (!recipe_ || !recipe_->delayed) return;
  const auto make = [&](core::DType dtype, std::int64_t elems) {
    return parallel::make_zeroed(workspace.memory, workspace.where, parallel::MemoryKind::buffers, dtype, elems);
  };
  history_ = make(core::DType::f32, numbers_ * length_);
  if (length_ > 1) shifted_ = make(core::DType::f32, numbers_ * (length_ - 1));
  codes_ = make(core::DType::f8e4m3, numbers_ * length_);
  for (parallel::Tensor* const numbers : {&previous_, &raised_, &scales_}) *numbers = make(core::DType::f32, numbers_);
}

parallel::Fp8Scaling Fp8History::of_part(std::int64_t part) const {
  if (!previous_.given()) return {recipe_};
  return {recipe_, previous_.in(part * kPerPart, kPerPart), raised_.inout(part * kPerPart, kPerPart)};
}

void Fp8History::end_step(bool trained, const parallel::Workspace& workspace) {
  if (!previous_.given()) return;
  if (trained) {
    if (length_ > 1) {
      copy_columns(workspace.where, numbers_, length_ - 1, history_, 1, shifted_, 0);
      copy_columns(workspace.where, numbers_, length_ - 1, shifted_, 0, history_, 0);
    }
    copy_columns(workspace.where, numbers_, 1, raised_, 0, history_, length_ - 1);
    find_previous(workspace.where);
  }
  parallel::set_zero(workspace.memory.device(), workspace.where, raised_.out());
}

// Encoding a row finds its largest element first, which is what is needed here.
void Fp8History::find_previous(const kernels::Context& where) const {
  kernels::run(kernels::Fp8Encode{.rows = numbers_,
                                  .columns = length_,
                                  .per = kernels::ScalePer::row,
                                  .x = history_.in(),
                                  .largest = previous_.out(),
                                  .scales = scales_.out(),
                                  .codes = codes_.out()},
               where);
}

std::vector<float> Fp8History::steps(const parallel::Workspace& workspace) const {
  if (!history_.given()) return {};
  parallel::finish(workspace.where);
  std::vector<float> values(static_cast<std::size_t>(history_.elems()));
  workspace.memory.device().copy_to_host(values.data(), history_.data(), static_cast<std::size_t>(history_.bytes()));
  return values;
}

void Fp8History::set_steps(std::span<const float> steps, const parallel::Workspace& workspace) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(steps.size()) == history_.elems(), "a history of as many steps");
  workspace.memory.device().copy_to_device(history_.data(), steps.data(), static_cast<std::size_t>(history_.bytes()));
  find_previous(workspace.where);
}

RouterBias::RouterBias(const workload::Model& model, std::int64_t parts, const parallel::Workspace& workspace)
    : experts_(model.experts), rate_(static_cast<float>(model.bias_rate)) {
  if (model.bias_rate == 0) return;
  values_.resize(static_cast<std::size_t>(parts * experts_));
  on_device_ = parallel::make_zeroed(workspace.memory, workspace.where, parallel::MemoryKind::buffers, core::DType::f32,
                                     parts * experts_);
}

kernels::In RouterBias::of_part(std::int64_t part) const {
  return on_device_.given() ? on_device_.in(part * experts_, experts_) : kernels::In{};
}

void RouterBias::balance(std::int64_t part, std::span<const std::int64_t> loads, const parallel::Workspace& workspace) {
  if (values_.empty()) return;
  LOCKSTEP_CHECK(static_cast<std::int64_t>(loads.size()) == experts_, "the choices of each expert");
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  for (std::size_t e = 0; e < loads.size(); ++e) {
    const std::int64_t above = loads[e] * experts_ - all;  // compared with the mean, times the number of experts
    float& value = values_[static_cast<std::size_t>(part * experts_) + e];
    if (above != 0) value += above < 0 ? rate_ : -rate_;
  }
  to_device(part, workspace);
}

std::vector<float> RouterBias::values(std::int64_t part) const {
  if (values_.empty()) return {};
  const auto first = values_.begin() + static_cast<std::ptrdiff_t>(part * experts_);
  return {first, first + static_cast<std::ptrdiff_t>(experts_)};
}

void RouterBias::set_values(std::int64_t part, std::span<const float> values, const parallel::Workspace& workspace) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(values.size()) == experts_ && !values_.empty(), "a bias of each expert");
  std::copy(values.begin(), values.end(), values_.begin() + static_cast<std::ptrdiff_t>(part * experts_));
  to_device(part, workspace);
}

void RouterBias::to_device(std::int64_t part, const parallel::Workspace& workspace) const {
  parallel::finish(workspace.where);
  const auto first = static_cast<std::size_t>(part * experts_);
  workspace.memory.device().copy_to_device(on_device_.as<float>() + first, values_.data() + first,
                                           static_cast<std::size_t>(experts_) * sizeof(float));
}

// ---- gradients of norms, and exchanges of rows

parallel::NormGradients HeldNormGradients::where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                                 workload::WeightIndex norm) {
  const std::int64_t columns = stage.shape.own_columns();
  const bool holds = op == schedules::Op::input_gradient;
  if (holds) {
    held_ = parallel::make_zeroed(stage.workspace.memory, stage.workspace.where, parallel::MemoryKind::gradients,
                                  core::DType::f32, (norm.has_bias ? 2 : 1) * columns);
  }
  parallel::NormGradients to{holds ? held_.inout(0, columns) : into.of(norm.weight)};
  if (norm.has_bias) to.beta = holds ? held_.inout(columns, columns) : into.of(norm.bias());
  return to;
}

void HeldNormGradients::release(const StageContext& stage, PartGradients& into, workload::WeightIndex norm) {
  if (!held_.given()) return;
  const std::int64_t columns = stage.shape.own_columns();
  for (std::size_t index = norm.weight; index < norm.end(); ++index) {
    const kernels::InOut sum = into.of(index);
    const auto begin = static_cast<std::int64_t>(index - norm.weight) * columns;
    kernels::run(kernels::ResidualAdd{.count = columns,
                                      .a = {sum.data, sum.dtype, sum.elems},
                                      .b = held_.in(begin, columns),
                                      .y = {sum.data, sum.dtype, sum.elems}},
                 stage.workspace.where);
  }
  held_.reset();
}

parallel::NormLayer NormRun::begin(const StageContext& stage, workload::PieceName what) {
  using kernels::NormPart;
  const bool rms = stage.shape.model.norm == workload::Norm::rms;
  parallel::NormLayer norm{rms ? kernels::Norm::rms : kernels::Norm::layer, stage.shape.own_rows(),
                           stage.shape.own_columns()};
  if (!stage.shape.layout.has_grid()) return norm;
  const bool is_first = (what.turn == 0) == (what.side == workload::Side::forward);
  if (is_first) {
    sums_ = stage.workspace.memory.make(parallel::MemoryKind::buffers, core::DType::f32,
                                        norm.rows * kernels::sums_per_row(norm.norm));
  }
  norm.part = is_first ? NormPart::sums : NormPart::rest;
  norm.ranks = stage.shape.layout.grid.side;
  norm.sums = sums_.inout();
  return norm;
}

bool NormRun::ends(const parallel::NormLayer& piece) {
  if (piece.part == kernels::NormPart::sums) return false;
  sums_.reset();
  return true;
}

namespace {

// Copies all rows, of which each tile has `own` rows of each rank, side by side.
parallel::Tensor reordered(const StageContext& stage, const parallel::Tensor& rows, bool into_tiles) {
  if (!stage.shape.layout.sequence_parallel || stage.shape.row_tiles == 1) return {};
  const std::int64_t tiles = stage.shape.row_tiles;
  const std::int64_t ranks = stage.shape.tensor.ranks;
  const std::int64_t own = rows.elems() / tiles / ranks;
  parallel::Tensor to = stage.make(rows.elems());
  for (std::int64_t r = 0; r < ranks; ++r) {
    kernels::CopyRows copy{.rows = tiles, .columns = own, .from_stride = ranks * own, .to_stride = own};
    std::int64_t from = r * own;
    std::int64_t first = r * tiles * own;
    if (into_tiles) {
      std::swap(copy.from_stride, copy.to_stride);
      std::swap(from, first);
    }
    copy.from = rows.in(from, (tiles - 1) * copy.from_stride + own);
    copy.to = to.out(first, (tiles - 1) * copy.to_stride + own);
    kernels::run(copy, stage.workspace.where);
  }
  return to;
}

}  // namespace

parallel::Tensor in_row_order(const StageContext& stage, const parallel::Tensor& in_tiles) {
  return reordered(stage, in_tiles, false);
}

parallel::Tensor in_tile_order(const StageContext& stage, const parallel::Tensor& in_rows) {
  return reordered(stage, in_rows, true);
}

kernels::Out RowSum::begin(const StageContext& stage, const parallel::RowTile& tile) {
  if (tile.is_first()) term_ = stage.make(stage.shape.shared_elems());
  return tile.of(term_.out());
}

void RowSum::end(const StageContext& stage, const parallel::RowTile& tile) {
  if (stage.shape.tensor.ranks == 1 && tile.is_last()) sum = std::move(term_);
}

GptStage::Exchange RowSum::exchange(const StageContext& stage, const parallel::RowTile& tile) {
  if (!stage.shape.layout.shares_rows()) return {tile.of(term_.in()), tile.of(term_.out())};
  if (tile.is_first()) sum = stage.make_own_rows();
  return {tile.of(term_.in()), tile.of(sum.out())};
}

void RowSum::exchanged(const StageContext& stage, const parallel::RowTile& tile) {
  if (!tile.is_last()) return;
  if (stage.shape.layout.shares_rows()) {
    term_.reset();
  } else {
    sum = std::move(term_);
  }
}

GptStage::Exchange RowGather::exchange(const StageContext& stage, const parallel::Tensor& own,
                                       const parallel::RowTile& tile) {
  if (tile.is_first()) {
    all_ = stage.workspace.memory.make(parallel::MemoryKind::buffers, stage.shape.layout.compute,
                                       stage.shape.shared_elems());
  }
  return {tile.of(own.in()), tile.of(all_.out())};
}

}  // namespace lockstep::trainer
