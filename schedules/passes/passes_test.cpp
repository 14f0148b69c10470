#include "schedules/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/step.h"
#include "testing/core/refusal.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

constexpr Piece kernel(Op op, std::int32_t part, std::int64_t ps) {
  return {.op = op, .part = part, .amount = ps};
}
constexpr Piece reduce(std::int32_t part, bool overlaps_next = false) {
  return {.op = Op::layer_collective,
          .part = part,
          .amount = 64,
          .comm = Comm::all_reduce,
          .group = GroupKind::tensor,
          .overlaps_next = overlaps_next};
}

Step two_ranks(const StageRecipe& recipe) {
  const Schedule schedule = make_schedule("1f1b", {2, 2, 1});
  Step step = lower(schedule, std::vector<StageCosts>(2));
  step.groups = {{GroupKind::tensor, {0}, 8}, {GroupKind::tensor, {1}, 8}};
  split_stages(step, std::vector<StageRecipe>(2, recipe));
  return step;
}

std::vector<std::uint32_t> after(const RankStep& rank, std::uint32_t i) {
  const auto edges = rank.after_of(rank.tasks[i]);
  return {edges.begin(), edges.end()};
}

TEST(SplitStages, OrdinaryCollectivesStandBetweenTheirKernels) {
  const StageRecipe recipe{.forward = {kernel(Op::forward, 0, 5), reduce(0), kernel(Op::forward, 1, 7), reduce(1)}};
  const Step step = two_ranks(recipe);
  const RankStep& rank = step.of_rank[0];  // F0 (4 pieces), its send, F1 (4 pieces), ...
  ASSERT_GE(rank.tasks.size(), 9U);
  EXPECT_EQ(rank.tasks[0].amount, 5);
  EXPECT_EQ(rank.tasks[1].lane, Lane::tensor);
  EXPECT_EQ(rank.tasks[1].peer, 0);
  EXPECT_EQ(after(rank, 1), std::vector<std::uint32_t>({0}));
  EXPECT_EQ(after(rank, 2), std::vector<std::uint32_t>({1}));
  EXPECT_EQ(after(rank, 3), std::vector<std::uint32_t>({2}));
  EXPECT_EQ(rank.tasks[4].op, Op::send_activations);
  EXPECT_EQ(after(rank, 4), std::vector<std::uint32_t>({2, 3}));  // the kernel and the collective after it
  EXPECT_EQ(after(rank, 5), std::vector<std::uint32_t>({3}));     // the next action's kernel also waits
  const RankStep& second = step.of_rank[1];
  EXPECT_EQ(second.tasks[0].op, Op::recv_activations);
  EXPECT_EQ(after(second, 1), std::vector<std::uint32_t>({0}));
}

TEST(SplitStages, ACollectiveDuringTheNextKernelIsAwaitedAfterIt) {
  const StageRecipe recipe{.forward = {},
                           .backward = {kernel(Op::input_gradient, 0, 5), reduce(0, true),
                                        kernel(Op::weight_gradient, 0, 4), kernel(Op::input_gradient, 1, 3)}};
  const Step step = two_ranks(recipe);
  const RankStep& rank = step.of_rank[1];  // receive, F0, B0 in pieces, send
  EXPECT_EQ(rank.tasks[1].op, Op::forward);
  EXPECT_EQ(rank.tasks[1].part, -1);  // no recipe: left whole
  EXPECT_EQ(after(rank, 3), std::vector<std::uint32_t>({2}));
  EXPECT_EQ(after(rank, 4), std::vector<std::uint32_t>({}));
  EXPECT_EQ(after(rank, 5), std::vector<std::uint32_t>({3}));
  EXPECT_EQ(rank.tasks[6].op, Op::send_gradient);
  EXPECT_EQ(after(rank, 6), std::vector<std::uint32_t>({5, 3}));
}

// If collectives take no time, the pieces take as long as the whole.
TEST(SplitStages, PiecesTakeAsLongAsTheWholeOnEverySchedule) {
  const StageRecipe recipe{
      .forward = {kernel(Op::forward, 0, 40), reduce(0), kernel(Op::forward, 1, 60)},
      .backward = {kernel(Op::backward, 1, 150), reduce(1), kernel(Op::backward, 0, 30)},
      .input_gradient = {kernel(Op::input_gradient, 1, 50), reduce(1, true), kernel(Op::input_gradient, 0, 50)},
      .weight_gradient = {kernel(Op::weight_gradient, 1, 80)}};
  for_every_schedule(4, [&](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    const std::size_t works = num_works(schedule);
    const Step whole = lower(schedule, std::vector<StageCosts>(works, {100, 100, 80, 1}));
    Step split = whole;
    for (std::int32_t r = 0; r < split.num_ranks(); ++r) split.groups.push_back({GroupKind::tensor, {r}, 2});
    split_stages(split, std::vector<StageRecipe>(works, recipe));
    const SimplePrices prices{.message_ps = 7};
    EXPECT_EQ(end_of(play_simply(split, prices)), end_of(play_simply(whole, prices))) << schedule.name;
  });
}

TEST(SplitStages, AMissingGroupIsNamed) {
  Step step = lower(make_schedule("1f1b", {2, 2, 1}), std::vector<StageCosts>(2));
  step.groups = {{GroupKind::tensor, {0}, 2}};
  const StageRecipe recipe{.forward = {kernel(Op::forward, 0, 5), reduce(0)}};
  EXPECT_EQ(core::refusal_of([&] { split_stages(step, std::vector<StageRecipe>(2, recipe)); }),
            "the recipe of stage 1 needs a group of kind tensor, and rank 1 is in none; allowed: one group of each "
            "kind that is used, a rank");
  EXPECT_THROW(split_stages(step, std::vector<StageRecipe>(1)), core::Error);
}

std::size_t find(const RankStep& rank, Op op, Lane lane) {
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    if (rank.tasks[i].op == op && rank.tasks[i].lane == lane) return i;
  }
  return rank.tasks.size();
}

// ZB-H2 has no bubble in a rank's own span; a barrier at the optimizer undoes that.
TEST(Optimizer, ABarrierMakesAllRanksWaitForTheLast) {
  const Schedule schedule = make_schedule("zb_h2", {4, 8, 1});
  for (const Barrier barrier : {Barrier::none, Barrier::norm}) {
    Step step = lower(schedule, std::vector<StageCosts>(4, {10, 10, 10, 1}));
    step.groups.push_back({GroupKind::world, {0, 1, 2, 3}});
    add_optimizer(step, std::vector<std::int64_t>(4, 5), barrier);
    const StepTimeline timeline = play_simply(step);
    const bool waits = barrier == Barrier::norm;
    // Rank r starts 10 r ps later than rank 0 and works for 8 x 30 ps.
    for (std::size_t r = 0; r < 4; ++r) {
      const std::size_t update = find(step.of_rank[r], Op::optimizer, Lane::compute);
      EXPECT_EQ(timeline[r][update].start_ps, 240 + 10 * static_cast<std::int64_t>(waits ? 3 : r));
      EXPECT_EQ(timeline[r][update].end_ps - timeline[r][update].start_ps, 5);
    }
  }
}

TEST(Optimizer, WaitsForTheLastReduction) {
  Step step = step_of_parts(make_schedule("1f1b", {1, 1, 1}), 2, 8);
  reduce_gradients(step, std::vector<std::vector<GradientBucket>>(1, {{.bytes = 4}}), {});
  add_optimizer(step, std::vector<std::int64_t>(1, 5), Barrier::none);
  const StepTimeline timeline = play_simply(step, {.collective = [](const Task&) { return 100; }});
  EXPECT_EQ(end_of(timeline), 2 * 30 + 100 + 5);
  EXPECT_THROW(add_optimizer(step, std::vector<std::int64_t>(1, 5), Barrier::norm), core::Error);
}

// Rank r of p begins a microbatch when all but p-1-r of the earlier ones have updated its weights (Narayanan et al.
// 2019, section 3.3), and updates after each backward, except for the last sends.
TEST(Optimizer, UpdatesOfEveryMicrobatchLeaveWeightsAsOldAsPipeDreams) {
  constexpr std::int32_t kRanks = 4;
  constexpr std::int32_t kMicrobatches = 9;
  Step step = lower(make_schedule("pipedream", {kRanks, kMicrobatches, 1}), std::vector<StageCosts>(kRanks));
  add_updates(step, std::vector<std::int64_t>(kRanks, 5));
  for (std::int32_t r = 0; r < kRanks; ++r) {
    std::int32_t updates = 0;
    std::int32_t backwards = 0;
    for (const Task& task : step.of_rank[static_cast<std::size_t>(r)].tasks) {
      if (task.op == Op::forward) {
        EXPECT_EQ(updates, std::max(0, task.microbatch - (kRanks - 1 - r)));
      }
      if (task.op == Op::backward) ++backwards;
      if (task.op != Op::optimizer) continue;
      EXPECT_EQ(task.microbatch, updates++);
      EXPECT_EQ(task.stage, r);
      EXPECT_EQ(task.amount, 5);
      EXPECT_EQ(updates, backwards);
    }
    EXPECT_EQ(updates, kMicrobatches);
  }
}

// Updates of different ranks do not wait for each other.
TEST(Optimizer, UpdatesOfEveryMicrobatchTakeNoTimeButTheirOwn) {
  const auto end = [](std::int64_t update_ps) {
    Step step = lower(make_schedule("pipedream", {4, 8, 1}), std::vector<StageCosts>(4, {10, 10, 10, 0}));
    add_updates(step, std::vector<std::int64_t>(4, update_ps));
    return end_of(play_simply(step));
  };
  EXPECT_EQ(end(0), 330);          // (m + p - 1) 30
  EXPECT_EQ(end(5), 330 + 8 * 5);  // the last stage has one after each of its m backwards; the drain hides the others
}

TEST(Optimizer, AnUpdateWaitsForTheReductionsOfItsMicrobatch) {
  Step step = step_of_parts(make_schedule("pipedream", {1, 2, 1}), 2, 8);
  reduce_gradients(step, std::vector<std::vector<GradientBucket>>(1, {{.bytes = 4}}), {.every_microbatch = true});
  add_updates(step, std::vector<std::int64_t>(1, 5));
  const StepTimeline timeline = play_simply(step, {.collective = [](const Task&) { return 100; }});
  EXPECT_EQ(end_of(timeline), 2 * (2 * 30 + 100 + 5));
}

std::vector<std::int32_t> updated_buckets(const RankStep& rank) {
  std::vector<std::int32_t> buckets;
  for (const Task& task : rank.tasks) {
    if (task.op == Op::optimizer) buckets.push_back(task.part);
  }
  return buckets;
}

// Three parts with backwards of 20 ps, one bucket each: without reductions an update follows each part's kernel.
TEST(Optimizer, BucketsAreUpdatedBehindTheirLastGradient) {
  Step step = step_of_parts(make_schedule("1f1b", {1, 2, 1}), 3, 1);
  const std::vector<BucketUpdate> updates{{.ps = 5, .part = 2}, {.ps = 5, .part = 1}, {.ps = 5, .part = 0}};
  add_bucket_updates(step, std::vector<std::vector<BucketUpdate>>(1, updates));
  const StepTimeline timeline = play_simply(step);
  EXPECT_EQ(updated_buckets(step.of_rank[0]), (std::vector<std::int32_t>{0, 1, 2}));
  const std::size_t first = find(step.of_rank[0], Op::optimizer, Lane::compute);
  EXPECT_EQ(timeline[0][first].start_ps, 3 * 30 + 3 * 10 + 20);  // in the second microbatch's backward
  EXPECT_EQ(end_of(timeline), 2 * 3 * 30 + 3 * 5);
}

// With reductions an update follows the reduction of the next bucket, so that kernels continue meanwhile; buckets that
// are summed once more come last.
TEST(Optimizer, BucketsAreUpdatedBehindTheirReductions) {
  Step step = step_of_parts(make_schedule("1f1b", {1, 1, 1}), 3, 8);
  const std::vector<GradientBucket> buckets{{.bytes = 4, .part = 2}, {.bytes = 4, .part = 1}, {.bytes = 4, .part = 0}};
  reduce_gradients(step, std::vector<std::vector<GradientBucket>>(1, buckets), {});
  const std::vector<BucketUpdate> updates{
      {.ps = 5, .part = 2}, {.ps = 5, .part = 1, .at_end = true}, {.ps = 5, .part = 0}};
  add_bucket_updates(step, std::vector<std::vector<BucketUpdate>>(1, updates));
  EXPECT_EQ(updated_buckets(step.of_rank[0]), (std::vector<std::int32_t>{0, 2, 1}));
  // Reductions start at 50, 70 and 90 ps and take 15 ps each; the first bucket is updated after the last backward, when
  // it has been reduced, and the others when the last reduction has ended.
  const StepTimeline timeline = play_simply(step, {.collective = [](const Task&) { return 15; }});
  EXPECT_EQ(end_of(timeline), 90 + 15 + 2 * 5);
}

Step lowered(const std::string& schedule, std::int32_t ranks, std::int32_t microbatches) {
  const Schedule written = make_schedule(schedule, {ranks, microbatches, 1});
  return lower(written, std::vector<StageCosts>(static_cast<std::size_t>(written.num_stages()), {10, 10, 10, 1}));
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
  for (const Step& filled : steps) {
    EXPECT_TRUE(check_step(filled).empty());
    EXPECT_EQ(end_of(play_simply(filled)), 90);
    for (const Task& task : filled.of_rank[0].tasks) {
      if (is_filler(task.op))
        of_rank_0.push_back(std::to_string(&filled - steps.data()) + (task.what % 2 == 0 ? "A" : "B") +
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

// Random steps with collectives during kernels: none takes longer, and all pass check_step().
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
    for (const Step& filled : steps) {
      EXPECT_TRUE(check_step(filled).empty()) << schedule.name;
      EXPECT_EQ(end_of(play_simply(filled, prices)), end_of(timeline)) << schedule.name;
    }
  }
}

TEST(FillBubbles, AKernelLongerThanAllBubblesIsRefused) {
  const Step step = lowered("1f1b", 2, 4);
  const auto items = items_of(step, {.input_curvature_ps = 1000}, 1);
  const std::string refusal = core::refusal_of([&] { fill_bubbles(step, play_simply(step), items); });
  EXPECT_NE(refusal.find("CURVATURE takes"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace lockstep::schedules
