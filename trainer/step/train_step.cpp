#include "trainer/step/train_step.h"

#include "core/error.h"
#include "schedules/step/check_step.h"
#include "trainer/model/gpt_stage.h"
#include "workload/build_step.h"
#include "workload/groups.h"

namespace lockstep::trainer {
namespace {

// A user's own schedule is at fault where the step is wrong, a generator of ours otherwise.
schedules::Step checked(schedules::Step step, const workload::Layout& layout) {
  if (layout.own_schedule == nullptr) {
    schedules::check_step_or_throw(step);
    return step;
  }
  const auto problems = schedules::check_step(step, 1);
  if (problems.empty()) return step;
  throw core::usage_error("the schedule " + step.name +
                          " cannot be trained: " + schedules::text_of(step, problems.front()) +
                          "; allowed: one whose copies of a stage do the same in the same order");
}

}  // namespace

void check_layout(const workload::Model& model, const workload::Layout& layout) {
  if (const std::string misfit = misfit_of(model); !misfit.empty()) throw core::usage_error("model: " + misfit);
  if (const std::string misfit = misfit_of(model, layout); !misfit.empty()) {
    throw core::usage_error("layout: " + misfit);
  }
  check_trainable(model, layout);
}

TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout) {
  const schedules::Schedule schedule = schedule_of(layout);
  const std::vector<workload::StageWork> works = works_of(model, layout, schedule);
  TrainStep made;
  made.stages = plans_of(model, layout, schedule);
  made.step = checked(unfolded(build_step(model, layout, schedule, made.stages, works), layout), layout);
  made.forward = checked(unfolded(build_forward(model, layout, schedule, made.stages, works), layout), layout);
  return made;
}

std::vector<std::int32_t> stages_of(const TrainStep& made, const workload::Layout& layout, std::int32_t rank) {
  std::vector<std::int32_t> stages;
  for (std::int32_t s = 0; s < made.step.num_stages(); ++s) {
    if (made.step.rank_of_stage[static_cast<std::size_t>(s)] == coordinates_of(layout, rank).pp) stages.push_back(s);
  }
  return stages;
}

}  // namespace lockstep::trainer
