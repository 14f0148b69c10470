#include "schedules/step/step_text.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "schedules/check.h"
#include "schedules/every_schedule.h"
#include "schedules/messages.h"
#include "schedules/parameters.h"
#include "schedules/passes/listed_parameters.h"
#include "schedules/passes/recipes_for_tests.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "schedules/step/check_step.h"
#include "schedules/step/count.h"
#include "schedules/step/simple_play.h"
#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

Schedule not_fused(Schedule schedule) {
  for (auto& list : schedule.of_rank) {
    for (Action& action : list) action.with_next = false;
  }
  return schedule;
}

// A step says again the schedule that it was lowered from, also when its actions are in pieces.
TEST(StepText, SaysTheScheduleThatItWasLoweredFrom) {
  for_every_schedule(4, [](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    const auto stages = static_cast<std::size_t>(schedule.num_stages());
    const Step whole = lower(schedule, std::vector<StageCosts>(stages));
    const Schedule written = not_fused(with_messages(schedule));
    EXPECT_EQ(schedule_of(whole).of_rank, written.of_rank) << schedule.name;
    EXPECT_EQ(step_to_csv(step_of_parts(schedule, 2, 1)), to_csv(written)) << schedule.name;
  });
}

TEST(StepText, UnitsAndBucketsOfAStageAreOneToken) {
  Step step = step_of_parts(make_schedule("1f1b", {1, 2, 1}), 2, 8);
  const std::vector<std::vector<Unit>> units(1, {{.first_part = 0}, {.first_part = 1}});
  reduce_gradients(step, std::vector<std::vector<GradientBucket>>(1, buckets_of(units[0])),
                   {.comm = Comm::reduce_scatter, .every_microbatch = true});
  shard_parameters(step, units, {.keep = Keep::always});
  EXPECT_EQ(step_to_csv(step), "0UNSHARD,0F0,0B0,0F1,0B1,0REDUCE_GRAD\n");
}

TEST(ListedParameters, PyTorchsPlacesAreRun) {
  for (const CatalogueEntry& entry : catalogue()) {
    const PipelineShape shape{4, 8, entry.takes_chunks ? 2 : 1};
    const Schedule schedule = with_reductions(with_gathers(entry.make(shape), 2));
    const auto stages = static_cast<std::size_t>(schedule.num_stages());
    Step step = lower(schedule, std::vector<StageCosts>(stages, {10, 10, 10, 1}));
    for (std::int32_t r = 0; r < step.num_ranks(); ++r) step.groups.push_back({GroupKind::data, {r}, 2});
    place_listed_parameters(step, schedule, std::vector<StageParameters>(stages, {100, 50}));
    EXPECT_TRUE(check_step(step).empty()) << entry.name;
    EXPECT_NO_THROW(play_simply(step, {.collective = [](const Task&) { return 3; }})) << entry.name;
    EXPECT_EQ(schedule_of(step).of_rank.size(), schedule.of_rank.size());
    EXPECT_EQ(step_to_csv(step), to_csv(not_fused(with_messages(schedule)))) << entry.name;
  }
}

TEST(ListedParameters, GathersAreWaitedForAndCounted) {
  const Schedule schedule = parse_csv("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n", "s.csv");
  Step step = lower(schedule, std::vector<StageCosts>(1, {10, 10, 10, 1}));
  step.groups.push_back({GroupKind::data, {0}, 2});
  place_listed_parameters(step, schedule, std::vector<StageParameters>(1, {100, 50}));
  const StepTimeline timeline = play_simply(step, {.collective = [](const Task& task) { return task.amount; }});
  EXPECT_EQ(end_of(timeline), 100 + 30 + 50);
  EXPECT_DOUBLE_EQ(count_sent(step)[0].of(GroupKind::data), 75);
}

TEST(ListedParameters, WhatIsNotThereIsRefused) {
  const auto refusal = [](std::string_view csv) -> std::string {
    const Schedule schedule = parse_csv(csv, "s.csv");
    Step step = lower(schedule, std::vector<StageCosts>(1));
    step.groups.push_back({GroupKind::data, {0}, 2});
    try {
      place_listed_parameters(step, schedule, std::vector<StageParameters>(1));
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("0F0,0B0\n"), "");
  EXPECT_EQ(refusal("0UNSHARD,0F0,0RESHARD,0B0\n").substr(0, 40), "rank 0, 0B0: stage 0 is not gathered; al");
  EXPECT_EQ(refusal("0UNSHARD,0UNSHARD,0F0,0B0\n").substr(0, 47), "rank 0, 0UNSHARD: stage 0 is gathered already; ");
  EXPECT_EQ(refusal("0RESHARD,0UNSHARD,0F0,0B0\n").substr(0, 42), "rank 0, 0RESHARD: stage 0 is not gathered;");
}

}  // namespace
}  // namespace lockstep::schedules
