#include "trainer/step/train_step.h"

#include <utility>

#include "core/error.h"
#include "schedules/step/check_step.h"
#include "schedules/step/unfold.h"
#include "trainer/model/gpt_stage.h"
#include "workload/build_step.h"
#include "workload/groups.h"

namespace lockstep::trainer {
namespace {

// An invalid step is the user's error if the schedule is the user's, otherwise a bug in a generator.
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
  if (const std::string reason = why_invalid(model); !reason.empty()) throw core::usage_error("model: " + reason);
  if (const std::string reason = why_invalid(model, layout); !reason.empty()) {
    throw core::usage_error("layout: " + reason);
  }
  check_trainable(model, layout);
  if (const std::string why = untrainable(schedule_of(layout)); !why.empty()) throw core::usage_error("layout: " + why);
}

std::string untrainable(const schedules::Schedule& schedule) {
  if (schedule.slices() > 1) {
    return "the schedule " + schedule.name + " cuts sequences into " + std::to_string(schedule.slices()) +
           " slices, which are simulated and emulated, not trained; allowed: slices=1";
  }
  if (evicts_activations(schedule)) {
    return "the schedule " + schedule.name +
           " keeps activations on other ranks, which is simulated and emulated, not trained; allowed: such as 1f1b";
  }
  return "";
}

TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout) {
  const schedules::Schedule schedule = schedule_of(layout);
  const std::vector<workload::StageWork> works = works_of(model, layout, schedule);
  TrainStep made;
  made.layout = layout;
  made.stages = plans_of(model, layout, schedule);
  made.step = checked(unfolded(build_step(model, layout, schedule, made.stages, works), layout), layout);
  made.forward = checked(unfolded(build_forward(model, layout, schedule, made.stages, works), layout), layout);
  return made;
}

namespace {

// Repeats the step of one replica on the ranks of every replica.
schedules::Step repeated(const schedules::Step& pipeline, const workload::Layout& replica,
                         const workload::Layout& layout) {
  const auto members_of = [&](const schedules::Group& folded, std::int32_t rank) {
    workload::Coordinates at = coordinates_of(layout, rank);
    const std::int32_t own = std::exchange(at.dp, 0);
    std::vector<std::int32_t> members;
    for (const workload::RankSet& run : workload::members_of(replica, folded, rank_at(replica, at))) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        at = coordinates_of(replica, run.at(i));
        at.dp = own;
        members.push_back(rank_at(layout, at));
      }
    }
    return members;
  };
  return schedules::unfold(pipeline, layout.ranks() / layout.pp,
                           static_cast<std::int32_t>(stride_of(layout, workload::Axis::pp)), members_of);
}

}  // namespace

TrainStep make_replicated_step(const workload::Model& model, const workload::Layout& layout) {
  TrainStep made;
  made.layout = layout;
  made.layout.dp = 1;
  const schedules::Schedule schedule = schedule_of(made.layout);
  const std::vector<workload::StageWork> works = works_of(model, made.layout, schedule);
  made.stages = plans_of(model, made.layout, schedule);
  const auto on_all = [&](const schedules::Step& step) { return checked(repeated(step, made.layout, layout), layout); };
  made.step = on_all(build_step(model, made.layout, schedule, made.stages, works));
  made.forward = on_all(build_forward(model, made.layout, schedule, made.stages, works));
  return made;
}

workload::Coordinates place_in_step(const TrainStep& made, const workload::Layout& layout, std::int32_t rank) {
  if (rank >= layout.ranks()) return {};
  workload::Coordinates at = coordinates_of(layout, rank);
  if (made.layout.dp != layout.dp) at.dp = 0;
  return at;
}

std::vector<std::int32_t> stages_of(const TrainStep& made, std::int32_t pipeline_place) {
  std::vector<std::int32_t> stages;
  for (std::int32_t s = 0; s < made.step.num_stages(); ++s) {
    if (made.step.rank_of_stage[static_cast<std::size_t>(s)] == pipeline_place) stages.push_back(s);
  }
  return stages;
}

}  // namespace lockstep::trainer
