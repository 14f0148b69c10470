#include "schedules/passes/fill_bubbles.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/passes/optimizer.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/steps_for_tests.h"
#include "schedules/step/check_step.h"

namespace lockstep::schedules {
namespace {

Step lowered(const std::string& schedule, std::int32_t ranks, std::int32_t microbatches) {
  const Schedule made = make_schedule(schedule, {ranks, microbatches, 1});
  return lower(made, std::vector<StageCosts>(static_cast<std::size_t>(made.num_stages()), {10, 10, 10, 1}));
}

std::vector<std::vector<FillerItem>> items_of(const Step& step, const SecondOrderMatrix& matrix, std::size_t matrices) {
  const std::vector<SecondOrderMatrix> of_stage(matrices, matrix);
  return second_order_items(step, std::vector<std::vector<SecondOrderMatrix>>(step.rank_of_stage.size(), of_stage));
}

// GPipe on 2 ranks, 2 microbatches: rank 0 waits from 20 to 50 and rank 1 from 0 to 10 and 70 to 80.
TEST(FillBubbles, WhatStandsFirstFillsTheFirstBubbles) {
  const Step step = lowered("gpipe", 2, 2);
  const StepTimeline timeline = play_simply(step);
  EXPECT_EQ(end_of(timeline), 90);
  const auto items = items_of(step, {0, 5, 5, 4, 4}, 1);
  const std::vector<Step> steps = fill_bubbles(step, timeline, items);
  std::vector<std::string> of_rank_0;
  for (const Step& one : steps) {
    EXPECT_TRUE(check_step(one).empty());
    EXPECT_EQ(end_of(play_simply(one)), 90);
    for (const Task& task : one.of_rank[0].tasks) {
      if (is_filler(task.op))
        of_rank_0.push_back(std::to_string(&one - steps.data()) + (task.what % 2 == 0 ? "A" : "B") +
                            (task.op == Op::curvature ? std::to_string(task.microbatch) : "inv"));
    }
  }
  // The first bubble follows the forwards: it takes both As, whose inversion is then due. Bs are made in the next step.
  EXPECT_EQ(of_rank_0, (std::vector<std::string>{"0A0", "0A1", "0Ainv", "1B0", "1B1", "1Binv"}));
}

// Curvature follows its microbatch's kernel in the first step; inversions follow all of their factor's curvature.
void expect_in_order(const std::vector<Step>& steps, const std::string& where) {
  for (std::size_t r = 0; r < steps.front().of_rank.size(); ++r) {
    std::map<std::tuple<std::int32_t, std::int32_t>, bool> forward;
    std::map<std::tuple<std::int32_t, std::int32_t>, bool> backward;
    std::map<std::tuple<std::uint32_t, std::int32_t>, std::int32_t> curvature;
    for (const Step& step : steps) {
      for (const Task& task : step.of_rank[r].tasks) {
        if (task.op == Op::forward) forward[{task.stage, task.microbatch}] = true;
        if (task.op == Op::backward || task.op == Op::input_gradient) backward[{task.stage, task.microbatch}] = true;
        if (task.op == Op::curvature) {
          EXPECT_TRUE((task.what % 2 == 0 ? forward : backward)[std::tuple(task.stage, task.microbatch)]) << where;
          ++curvature[{task.what, task.stage}];
        }
        if (task.op == Op::inversion) {
          std::int32_t microbatches = 0;
          for (const auto& [key, made] : forward) microbatches += std::get<0>(key) == task.stage ? 1 : 0;
          EXPECT_EQ((curvature[{task.what, task.stage}]), microbatches) << where;
        }
      }
    }
  }
}

// Random steps with collectives beside kernels: none takes longer, and all pass check_step().
TEST(FillBubbles, NoStepOfAnyScheduleGrows) {
  std::mt19937 random(7);
  const SimplePrices prices{.collective = [](const Task&) { return 25; }, .message_ps = 3};
  for (const CatalogueEntry& entry : catalogue()) {
    const PipelineShape shape{4, 8, entry.takes_chunks ? 2 : 1};
    if (!why_invalid(entry, shape).empty()) continue;
    const Schedule schedule = entry.make(shape);
    Step step = step_of_parts(schedule, 2, 4);
    const std::vector<GradientBucket> buckets{{.bytes = 4, .part = 1}, {.bytes = 4, .part = 0}};
    reduce_gradients(step, std::vector<std::vector<GradientBucket>>(step.rank_of_stage.size(), buckets), {});
    step.groups.push_back({GroupKind::world, {0, 1, 2, 3}});
    add_optimizer(step, std::vector<std::int64_t>(4, 5), Barrier::norm);
    const StepTimeline timeline = play_simply(step, prices);
    const auto most = [&](int limit) { return std::uniform_int_distribution<std::int64_t>(1, limit)(random); };
    const SecondOrderMatrix matrix{0, most(8), most(8), most(10), most(10)};
    const std::vector<Step> steps = fill_bubbles(step, timeline, items_of(step, matrix, 2));
    expect_in_order(steps, schedule.name);
    for (const Step& one : steps) {
      EXPECT_TRUE(check_step(one).empty()) << schedule.name;
      EXPECT_EQ(end_of(play_simply(one, prices)), end_of(timeline)) << schedule.name;
    }
  }
}

TEST(FillBubbles, AKernelLongerThanAllBubblesIsRefused) {
  const Step step = lowered("1f1b", 2, 4);
  try {
    fill_bubbles(step, play_simply(step), items_of(step, {.input_curvature_ps = 1000}, 1));
    FAIL() << "a kernel of 1000 ps";
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("CURVATURE takes"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::schedules
