#include "trainer/step/train_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "schedules/passes/buckets.h"
#include "schedules/passes/optimizer.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "schedules/passes/split_stages.h"
#include "schedules/step/check_step.h"
#include "schedules/step/lower.h"
#include "schedules/step/unfold.h"
#include "trainer/step/bucket_plan.h"

namespace lockstep::trainer {
namespace {

using schedules::Comm;
using schedules::Group;
using schedules::GroupKind;
using schedules::Schedule;
using schedules::Step;

// A forward of each microbatch, in the order in which the schedule has them.
Schedule forwards_of(Schedule schedule) {
  schedule.name += " (forward only)";
  for (auto& actions : schedule.of_rank) {
    std::erase_if(actions, [](const schedules::Action& action) { return action.op != schedules::Op::forward; });
    for (schedules::Action& action : actions) action.with_next = false;
  }
  return schedule;
}

// One rank for each place of the pipeline: groups name it, and how many they have in truth. The two ends of opposite
// pipes have the same stages, and so the same groups of data-parallel ranks.
std::vector<Group> groups_of(const TrainLayout& layout) {
  std::vector<Group> groups;
  for (std::int32_t p = 0; p < layout.pp; ++p) groups.push_back({GroupKind::tensor, {p}, layout.tp});
  const std::int32_t pipes = pipes_of(layout);
  for (std::int32_t p = 0; p < layout.pp / pipes; ++p) {
    std::vector<std::int32_t> places{p};
    if (pipes > 1) places.push_back(layout.pp - 1 - p);
    groups.push_back({GroupKind::data, places, shards_of(layout)});
    if (replicas_of(layout) > 1) groups.push_back({GroupKind::replicas, places, replicas_of(layout)});
  }
  Group world{GroupKind::world, {}, layout.ranks()};
  for (std::int32_t p = 0; p < layout.pp; ++p) world.ranks.push_back(p);
  groups.push_back(std::move(world));
  return groups;
}

// Neighbours share a set of shards, as in Megatron-LM and PyTorch's device meshes (replicas outside, shards inside).
std::vector<std::int32_t> members_of(const TrainLayout& layout, const Group& folded, std::int32_t rank) {
  const Coordinates at = coordinates_of(layout, rank);
  const std::int32_t shards = shards_of(layout);
  const std::int32_t index = data_index_of(layout, at);
  std::vector<std::int32_t> members;
  const auto add_data = [&](std::int32_t first, std::int32_t stride) {
    for (std::int64_t i = 0; i < folded.size(); ++i) {
      members.push_back(rank_at(layout, data_rank_at(layout, at, first + stride * static_cast<std::int32_t>(i))));
    }
  };
  switch (folded.kind) {
    case GroupKind::tensor:
      for (std::int32_t t = 0; t < layout.tp; ++t) members.push_back(rank_at(layout, {t, at.dp, at.pp}));
      break;
    case GroupKind::data:
      add_data(index / shards * shards, 1);
      break;
    case GroupKind::replicas:
      add_data(index % shards, shards);
      break;
    case GroupKind::embedding:
      for (const std::int32_t p : folded.ranks) members.push_back(rank_at(layout, {at.tp, at.dp, p}));
      break;
    default:
      LOCKSTEP_CHECK(folded.kind == GroupKind::world, "a group that layouts of the trainer have");
      members.resize(static_cast<std::size_t>(layout.ranks()));
      std::iota(members.begin(), members.end(), 0);
  }
  return members;
}

std::vector<StagePlan> stage_plans(const GptShape& shape, const TrainLayout& layout, const Schedule& schedule) {
  std::vector<StagePlan> plans;
  for (std::int32_t s = 0; s < schedule.num_stages(); ++s) {
    StagePlan plan;
    plan.place = place_of(shape.config, schedule.stages_a_pipe, s % schedule.stages_a_pipe);
    plan.parameters = parameters_of(shape.config, plan.place);
    plan.buckets = buckets_for(plan, layout);
    plans.push_back(std::move(plan));
  }
  return plans;
}

Step pieces_of(const Schedule& schedule, const GptShape& shape, const TrainLayout& layout,
               const std::vector<StagePlan>& plans) {
  const auto stages = static_cast<std::size_t>(schedule.num_stages());
  Step step =
      schedules::lower(schedule, std::vector<schedules::StageCosts>(stages, {.message_bytes = message_bytes(shape)}));
  step.groups = groups_of(layout);
  std::vector<schedules::StageRecipe> recipes;
  for (const StagePlan& plan : plans) recipes.push_back(recipe_of(shape, plan.place));
  schedules::split_stages(step, recipes);
  return step;
}

template <class Item, class Make>
std::vector<std::vector<Item>> for_stages(const std::vector<StagePlan>& plans, const Make& make) {
  std::vector<std::vector<Item>> all;
  for (const StagePlan& plan : plans) all.push_back(make(plan));
  return all;
}

std::vector<std::vector<schedules::Unit>> all_units(const GptShape& shape, const TrainLayout& layout,
                                                    const std::vector<StagePlan>& plans) {
  return for_stages<schedules::Unit>(plans,
                                     [&](const StagePlan& plan) { return units_of(plan, layout, shape.compute); });
}

void add_data_parallel(Step& step, const GptShape& shape, const TrainLayout& layout,
                       const std::vector<StagePlan>& plans) {
  if (data_ranks_of(layout) == 1) return;
  const auto buckets = for_stages<schedules::GradientBucket>(
      plans, [&](const StagePlan& plan) { return gradient_buckets_of(plan, layout); });
  std::vector<GroupKind> then_over;
  if (replicas_of(layout) > 1) then_over.push_back(GroupKind::replicas);
  schedules::reduce_gradients(step, buckets,
                              {.comm = zero_of(layout) == 0 ? Comm::all_reduce : Comm::reduce_scatter,
                               .every_microbatch = zero_of(layout) >= 2,
                               .overlapped = layout.overlap_gradients,
                               .then_over = std::move(then_over)});
  if (zero_of(layout) < 3) return;
  schedules::shard_parameters(step, all_units(shape, layout, plans),
                              {.keep = schedules::Keep::while_used,
                               .in_flight = layout.prefetch ? 2 : 1,
                               .backward_prefetch = layout.prefetch});
}

// The ranks that have the first and the last stage. Each alone where it has both: where the pipe comes back, and where
// the opposite pipe begins (whose copies have been summed before).
std::vector<Group> embedding_groups(const Step& step) {
  const std::int32_t first = step.rank_of_stage.front();
  const std::int32_t last = step.rank_of_stage[static_cast<std::size_t>(step.stages_a_pipe) - 1];
  if (first == last) return {{GroupKind::embedding, {first}, 1}};
  if (step.num_stages() > step.stages_a_pipe) {
    return {{GroupKind::embedding, {first}, 1}, {GroupKind::embedding, {last}, 1}};
  }
  return {{GroupKind::embedding, {std::min(first, last), std::max(first, last)}, 2}};
}

// What follows the last gradient: sums over other groups, the norm, the update, the gathers of its result.
void add_end_of_step(Step& step, const GptShape& shape, const TrainLayout& layout,
                     const std::vector<StagePlan>& plans) {
  const std::int64_t partial = partial_norm_bytes(plans, layout);
  if (layout.tp > 1 && partial > 0) schedules::reduce_at_end(step, GroupKind::tensor, partial);
  if (step.stages_a_pipe > 1) {
    for (Group& group : embedding_groups(step)) step.groups.push_back(std::move(group));
    schedules::reduce_at_end(step, GroupKind::embedding, tied_gradient_bytes(plans.front(), layout));
  }
  schedules::add_optimizer(step, std::vector<std::int64_t>(static_cast<std::size_t>(layout.pp)),
                           schedules::Barrier::norm);
  if (zero_of(layout) == 1 || zero_of(layout) == 2) {
    schedules::gather_after_step(step, all_units(shape, layout, plans));
  }
}

Step unfolded(const Step& step, const TrainLayout& layout) {
  Step whole = schedules::unfold(step, layout.dp * layout.tp, [&](const Group& folded, std::int32_t rank) {
    return members_of(layout, folded, rank);
  });
  if (layout.own_schedule != nullptr) {
    const auto problems = schedules::check_step(whole, 1);
    if (problems.empty()) return whole;
    throw core::usage_error("the schedule " + whole.name +
                            " cannot be trained: " + schedules::text_of(whole, problems.front()) +
                            "; allowed: one whose copies of a stage do the same in the same order");
  }
  schedules::check_step_or_throw(whole);
  return whole;
}

}  // namespace

TrainStep make_train_step(const GptShape& shape, const TrainLayout& layout) {
  const Schedule schedule = schedule_of(layout);
  TrainStep made;
  made.stages = stage_plans(shape, layout, schedule);
  Step step = pieces_of(schedule, shape, layout, made.stages);
  add_data_parallel(step, shape, layout, made.stages);
  add_end_of_step(step, shape, layout, made.stages);
  made.step = unfolded(step, layout);
  Step forward = pieces_of(forwards_of(schedule), shape, layout, made.stages);
  if (zero_of(layout) == 3) {
    schedules::shard_parameters(forward, all_units(shape, layout, made.stages), {.keep = schedules::Keep::while_used});
  }
  made.forward = unfolded(forward, layout);
  return made;
}

std::vector<std::int32_t> stages_of(const TrainStep& made, const TrainLayout& layout, std::int32_t rank) {
  std::vector<std::int32_t> stages;
  for (std::int32_t s = 0; s < made.step.num_stages(); ++s) {
    if (made.step.rank_of_stage[static_cast<std::size_t>(s)] == coordinates_of(layout, rank).pp) stages.push_back(s);
  }
  return stages;
}

}  // namespace lockstep::trainer
