#include "trainer/model/norm_gradients.h"

#include "core/dtype.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::trainer {

parallel::NormGradients HeldNormGradients::where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                                 std::size_t gamma) {
  if (op != schedules::Op::input_gradient) return {into.of(gamma), into.of(gamma + 1)};
  const std::int64_t columns = stage.shape.model.hidden;
  held_ = parallel::make_zeroed(stage.workspace.memory, stage.workspace.where, parallel::MemoryKind::gradients,
                                core::DType::f32, 2 * columns);
  return {held_.inout(0, columns), held_.inout(columns, columns)};
}

void HeldNormGradients::release(const StageContext& stage, PartGradients& into, std::size_t gamma) {
  if (!held_.given()) return;
  const std::int64_t columns = stage.shape.model.hidden;
  for (std::size_t k = 0; k < 2; ++k) {
    const kernels::InOut sum = into.of(gamma + k);
    kernels::run(kernels::ResidualAdd{.count = columns,
                                      .a = {sum.data, sum.dtype, sum.elems},
                                      .b = held_.in(static_cast<std::int64_t>(k) * columns, columns),
                                      .y = {sum.data, sum.dtype, sum.elems}},
                 stage.workspace.where);
  }
  held_.reset();
}

}  // namespace lockstep::trainer
