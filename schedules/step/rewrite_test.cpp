#include "schedules/step/rewrite.h"

#include <gtest/gtest.h>

#include "schedules/generators/catalogue.h"
#include "schedules/passes/optimizer.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/steps_for_tests.h"
#include "schedules/step/check_step.h"

namespace lockstep::schedules {
namespace {

// Two parts with 10 ps forward and 20 ps backward, one bucket each, whose reductions take 100 ps; then an update of 5
// ps.
Step step_of_two_buckets(Barrier barrier) {
  Step step = step_of_parts(make_schedule("1f1b", {1, 1, 1}), 2, 8);
  step.groups.push_back({GroupKind::world, {0}});
  const std::vector<GradientBucket> buckets{{.bytes = 4, .part = 1}, {.bytes = 4, .part = 0}};
  reduce_gradients(step, std::vector<std::vector<GradientBucket>>(1, buckets), {});
  add_optimizer(step, std::vector<std::int64_t>(1, 5), barrier);
  return step;
}

std::int64_t time_of(const Step& step) {
  EXPECT_TRUE(check_step(step).empty());
  return end_of(play_simply(step, {.collective = [](const Task&) { return 100; }}));
}

TEST(LeaveOut, NothingChangesNothing) {
  Step step = step_of_two_buckets(Barrier::norm);
  const std::int64_t whole = time_of(step);
  leave_out(step, [](const Task&) { return false; });
  EXPECT_EQ(time_of(step), whole);
}

TEST(LeaveOut, KernelsAloneAndCollectivesAlone) {
  Step kernels = step_of_two_buckets(Barrier::none);
  Step collectives = kernels;
  leave_out(kernels, [](const Task& task) { return task.lane == Lane::reduce; });
  EXPECT_EQ(time_of(kernels), 2 * 30 + 5);
  leave_out(collectives, [](const Task& task) { return task.lane == Lane::compute; });
  EXPECT_EQ(time_of(collectives), 2 * 100);
  EXPECT_EQ(collectives.of_rank[0].tasks.size(), 2U);
}

// The update waited only for the norm, and the norm for the reductions by its lane's order.
TEST(LeaveOut, WhatWasBehindATaskIsBehindWhatThatWasBehind) {
  Step step = step_of_two_buckets(Barrier::norm);
  leave_out(step, [](const Task& task) { return task.op == Op::optimizer && task.comm != Comm::none; });
  EXPECT_EQ(time_of(step), time_of(step_of_two_buckets(Barrier::none)));
}

// Two stages, three copies: ranks 0 to 2 have stage 0, ranks 3 to 5 stage 1; gradients are reduced over the copies.
TEST(Unfold, CopiesSendWithinThemselvesAndReduceTogether) {
  Step pipeline = step_of_parts(make_schedule("1f1b", {2, 4, 1}), 2, 3);
  reduce_gradients(pipeline, std::vector<std::vector<GradientBucket>>(2, {{.bytes = 8, .part = 0}}), {});
  const Step whole = unfold(pipeline, 3, 3, [](const Group& folded, std::int32_t /*rank*/) {
    const std::int32_t first = folded.ranks.front() * 3;
    return std::vector<std::int32_t>{first, first + 1, first + 2};
  });
  ASSERT_EQ(whole.num_ranks(), 6);
  ASSERT_EQ(whole.groups.size(), 2u);
  EXPECT_EQ(whole.groups[1].ranks, (std::vector<std::int32_t>{3, 4, 5}));
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    for (const Task& task : whole.of_rank[static_cast<std::size_t>(rank)].tasks) {
      if (is_message(task.op)) {
        EXPECT_EQ(task.peer, (rank + 3) % 6);
      }
      if (task.comm != Comm::none) {
        EXPECT_EQ(task.peer, rank / 3);
      }
    }
  }
  EXPECT_TRUE(check_step(whole).empty());
}

// The same with neighbouring ranks in one pipeline: even ranks have stage 0.
TEST(Unfold, RanksOfAPipelineMayBeNeighbours) {
  Step pipeline = step_of_parts(make_schedule("1f1b", {2, 4, 1}), 2, 3);
  reduce_gradients(pipeline, std::vector<std::vector<GradientBucket>>(2, {{.bytes = 8, .part = 0}}), {});
  const Step whole = unfold(pipeline, 3, 1, [](const Group& folded, std::int32_t /*rank*/) {
    const std::int32_t first = folded.ranks.front();
    return std::vector<std::int32_t>{first, first + 2, first + 4};
  });
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    for (const Task& task : whole.of_rank[static_cast<std::size_t>(rank)].tasks) {
      if (is_message(task.op)) {
        EXPECT_EQ(task.peer, rank ^ 1);
      }
    }
  }
  EXPECT_TRUE(check_step(whole).empty());
}

}  // namespace
}  // namespace lockstep::schedules
