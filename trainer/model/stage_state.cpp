#include "trainer/model/stage_state.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "kernels/copy/copy.h"
#include "kernels/fp8/fp8.h"
#include "parallel/parameters/device_memory.h"
#include "workload/operations.h"

namespace lockstep::trainer {
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

}  // namespace lockstep::trainer
