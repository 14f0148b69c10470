#include "schedules/passes/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/steps_for_tests.h"

namespace lockstep::schedules {
namespace {

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

}  // namespace
}  // namespace lockstep::schedules
