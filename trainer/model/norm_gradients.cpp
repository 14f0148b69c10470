#include "trainer/model/norm_gradients.h"

#include "core/dtype.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::trainer {

parallel::NormGradients HeldNormGradients::where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                                 workload::WeightPlace norm) {
  const std::int64_t columns = stage.shape.model.hidden;
  const bool holds = op == schedules::Op::input_gradient;
  if (holds) {
    held_ = parallel::make_zeroed(stage.workspace.memory, stage.workspace.where, parallel::MemoryKind::gradients,
                                  core::DType::f32, (norm.has_bias ? 2 : 1) * columns);
  }
  parallel::NormGradients to{holds ? held_.inout(0, columns) : into.of(norm.weight)};
  if (norm.has_bias) to.beta = holds ? held_.inout(columns, columns) : into.of(norm.bias());
  return to;
}

void HeldNormGradients::release(const StageContext& stage, PartGradients& into, workload::WeightPlace norm) {
  if (!held_.given()) return;
  const std::int64_t columns = stage.shape.model.hidden;
  for (std::size_t place = norm.weight; place < norm.end(); ++place) {
    const kernels::InOut sum = into.of(place);
    const auto begin = static_cast<std::int64_t>(place - norm.weight) * columns;
    kernels::run(kernels::ResidualAdd{.count = columns,
                                      .a = {sum.data, sum.dtype, sum.elems},
                                      .b = held_.in(begin, columns),
                                      .y = {sum.data, sum.dtype, sum.elems}},
                 stage.workspace.where);
  }
  held_.reset();
}

}  // namespace lockstep::trainer
