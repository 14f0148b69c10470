#include "trainer/sync/gradient_update.h"

#include <algorithm>

#include "kernels/optimizer/optimizer.h"
#include "workload/buckets.h"

namespace lockstep::trainer {

double square_of_gradients(RankModel& model) {
  double sum = 0;
  for (RankStage& stage : model.stages()) {
    const auto counts = [&](std::size_t parameter) {
      return workload::counts_in_norm(*stage.plan, parameter, model.layout(), model.place());
    };
    double square = 0;
    stage.store->sum_of_squares(counts, {&square, core::DType::f64, 1}, model.where());
    sum += square;
  }
  return sum;
}

// The clipping factor is that of torch.nn.utils.clip_grad_norm_ (kernels::ClipFactor).
void update_from_gradients(RankModel& model, const UpdateRules& rules, double norm) {
  float factor = 1;
  if (rules.most_norm > 0) factor = static_cast<float>(std::min(1.0, rules.most_norm / (norm + kernels::kClipEpsilon)));
  const auto schedule = kernels::adamw_schedule(rules.adamw.rate, rules.adamw.beta1, rules.adamw.beta2, rules.step);
  const parallel::ParameterStore::UpdateOnDevice numbers{
      .factor = {&factor, core::DType::f32, 1},
      .schedule = {schedule.data(), core::DType::f32, static_cast<std::int64_t>(schedule.size())}};
  for (RankStage& stage : model.stages()) stage.store->update(rules.adamw, numbers);
}

}  // namespace lockstep::trainer
