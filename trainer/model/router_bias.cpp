#include "trainer/model/router_bias.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::trainer {

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
