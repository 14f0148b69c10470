#include "trainer/model/fp8_history.h"

#include "kernels/cast/cast.h"
#include "parallel/parameters/device_memory.h"
#include "workload/operations.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kPerPart = workload::kFp8LinearLayers * parallel::kFp8Tensors;

}  // namespace

Fp8History::Fp8History(const workload::Layout& layout, std::int64_t parts, const parallel::Workspace& workspace)
    : recipe_(fp8_recipe_of(layout)) {
  if (!recipe_ || !recipe_->delayed) return;
  for (parallel::Tensor* const numbers : {&previous_, &raised_}) {
    *numbers = parallel::make_zeroed(workspace.memory, workspace.where, parallel::MemoryKind::buffers, core::DType::f32,
                                     parts * kPerPart);
  }
}

parallel::Fp8Scaling Fp8History::of_part(std::int64_t part) const {
  if (!previous_.given()) return {recipe_};
  return {recipe_, previous_.in(part * kPerPart, kPerPart), raised_.inout(part * kPerPart, kPerPart)};
}

void Fp8History::end_step(bool trained, const parallel::Workspace& workspace) {
  if (!previous_.given()) return;
  if (trained) {
    kernels::run(kernels::Cast{.count = raised_.elems(),
                               .from = core::DType::f32,
                               .to = core::DType::f32,
                               .x = raised_.in(),
                               .y = previous_.out()},
                 workspace.where);
  }
  parallel::set_zero(workspace.memory.device(), workspace.where, raised_.out());
}

}  // namespace lockstep::trainer
