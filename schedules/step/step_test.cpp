#include "schedules/step/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>

#include "core/error.h"
#include "core/random.h"
#include "schedules/generators/catalogue.h"
#include "schedules/passes/passes.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/step/rewrite.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kParts = 3;

std::vector<Unit> units() {
  return {{.first_part = 0, .num_parts = 2, .parameter_bytes = 80, .gradient_bytes = 40},
          {.first_part = 2, .parameter_bytes = 30, .gradient_bytes = 20}};
}

// A step with everything that passes can add.
Step full_step(const Schedule& schedule) {
  Step step = step_of_parts(schedule, kParts, 4);
  std::vector<std::int32_t> all;
  for (std::int32_t r = 0; r < step.num_ranks(); ++r) all.push_back(r);
  step.groups.push_back({GroupKind::world, all});
  ReduceOptions reduce{.comm = Comm::reduce_scatter, .every_microbatch = true};
  if (schedule.num_pipes() > 1) {
    add_groups_of_ends(step, GroupKind::replicas);
    reduce.over_replicas = true;
  }
  const auto stages = static_cast<std::size_t>(step.num_stages());
  reduce_gradients(step, std::vector<std::vector<GradientBucket>>(stages, buckets_of(units())), reduce);
  shard_parameters(step, std::vector<std::vector<Unit>>(stages, units()), {});
  if (!evicts_activations(schedule)) {  // they go to one place
    offload_activations(step, std::vector<std::vector<CopyCosts>>(stages, std::vector<CopyCosts>(kParts, {1, 3, 3})));
  }
  add_optimizer(step, std::vector<std::int64_t>(all.size(), 5), Barrier::norm);
  return step;
}

std::string first_problem(const Step& step) {
  const auto problems = check_step(step);
  return problems.empty() ? "" : text_of(step, problems.front());
}

// Ranks that hold copies of the same stages of two pipes issue their reductions in the same order.
TEST(CheckStep, AllPassesOnEveryScheduleAreRight) {
  int checked = 0;
  for_every_schedule(4, [&](const CatalogueEntry&, const PipelineShape& shape, const Schedule& schedule) {
    if (shape.microbatches > 9) return;
    const Step step = full_step(schedule);
    EXPECT_EQ(first_problem(step), "") << schedule.name << " " << shape.ranks << " " << shape.microbatches;
    EXPECT_NO_THROW(play_simply(step));
    ++checked;
  });
  EXPECT_GT(checked, 100);
}

Task& find(Step& step, std::size_t rank, Op op) {
  for (Task& task : step.of_rank[rank].tasks) {
    if (task.op == op) return task;
  }
  throw std::runtime_error("no such task");
}

TEST(CheckStep, MistakesAreNamed) {
  const Step right = full_step(make_schedule("1f1b", {2, 2, 1}));
  const auto with = [&](const std::function<void(Step&)>& change) {
    Step step = right;
    change(step);
    return first_problem(step);
  };
  EXPECT_EQ(with([](Step& s) { s.of_rank[0].after[0] = 1000; }).substr(0, 6), "rank 0");
  EXPECT_EQ(with([](Step& s) { find(s, 1, Op::recv_activations).tag = 9; }),
            "rank 1, task 2 (1RECV_F0): tags are 0 to 1");
  EXPECT_EQ(with([](Step& s) { find(s, 0, Op::send_activations).tag = 1; }).substr(0, 6), "rank 0");
  EXPECT_EQ(with([](Step& s) { find(s, 0, Op::send_activations).amount = 7; }),
            "rank 1, task 2 (1RECV_F0): gets 7 bytes");
  EXPECT_EQ(with([](Step& s) { find(s, 0, Op::unshard).peer = 99; }),
            "rank 0, task 0 (0UNSHARD): there is no such group");
  EXPECT_EQ(with([](Step& s) { find(s, 1, Op::unshard).peer = 0; }).substr(0, 6), "rank 1");
  EXPECT_NE(with([](Step& s) { find(s, 0, Op::reshard).part = 7; }).find("the unit is not gathered"),
            std::string::npos);
  const auto no_forward = [](Step& s) {
    for (Task& task : s.of_rank[0].tasks) task.microbatch = task.op == Op::forward ? 1 : task.microbatch;
  };
  EXPECT_NE(with(no_forward).find("the activations are missing"), std::string::npos);
  EXPECT_EQ(with([](Step& s) { find(s, 0, Op::forward).amount = -1; }).substr(0, 6), "rank 0");
  EXPECT_NE(with([](Step& s) {
              s.groups.push_back({GroupKind::world, {0}});
            }).find("in two groups of kind world"),
            std::string::npos);
  EXPECT_NE(with([](Step& s) { find(s, 1, Op::optimizer).amount = 8; }).find("meets all_reduce of 4 bytes of rank 0"),
            std::string::npos);
  EXPECT_THROW(check_step_or_throw([&] {
                 Step step = right;
                 find(step, 0, Op::forward).amount = -1;
                 return step;
               }()),
               core::Error);
}

TEST(CheckStep, AHangIsShownWithWhereLanesStand) {
  // Each rank waits for the other's message before it sends its own.
  Step step{.name = "hang", .num_microbatches = 1, .stages_per_pipe = 2, .rank_of_stage = {0, 1}};
  for (std::int32_t r = 0; r < 2; ++r) {
    RankWriter rank;
    const std::uint32_t got[] = {rank.add(
        {.op = Op::recv_activations, .lane = Lane::receive, .stage = r, .microbatch = 0, .peer = 1 - r, .tag = 0})};
    rank.add({.op = Op::send_activations, .lane = Lane::send, .stage = r, .microbatch = 0, .peer = 1 - r, .tag = 0},
             got);
    step.of_rank.push_back(rank.take());
  }
  const auto problems = check_step(step);
  ASSERT_EQ(problems.size(), 4U);
  EXPECT_EQ(text_of(step, problems[0]), "rank 0, task 1 (0SEND_F0): is blocked in lane send");
  EXPECT_EQ(text_of(step, problems[3]), "rank 1, task 0 (1RECV_F0): is blocked in lane receive");
}

// Steps that pass the check run to their end.
TEST(CheckStep, RandomChangesAreFoundOrDoNoHarm) {
  core::Random random(3);
  int found = 0;
  int harmless = 0;
  for_every_schedule(3, [&](const CatalogueEntry&, const PipelineShape& shape, const Schedule& schedule) {
    if (shape.microbatches > 6) return;
    Step step = full_step(schedule);
    auto& tasks = step.of_rank[random.below(step.of_rank.size())].tasks;
    Task& task = tasks[random.below(tasks.size())];
    Task& other = tasks[random.below(tasks.size())];
    switch (random.below(4)) {
      case 0:
        std::swap(task.tag, other.tag);
        break;
      case 1:
        std::swap(task.lane, other.lane);
        break;
      case 2:
        std::swap(task.amount, other.amount);
        break;
      default:
        std::swap(task.peer, other.peer);
    }
    if (!check_step(step).empty()) {
      ++found;
      return;
    }
    ++harmless;
    EXPECT_NO_THROW(play_simply(step)) << schedule.name;
  });
  EXPECT_GT(found, 50);
  EXPECT_GT(harmless, 20);
}

// A step of whole actions takes as long as the schedule that it was lowered from, with messages in its lists or not.
TEST(Lower, StepsTakeAsLongAsTheirSchedules) {
  for_every_schedule(5, [](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    const std::int64_t unit = 1200 / schedule.chunks() / schedule.slices();          // they divide 1200
    const Times times{1200, 1200, 1200, evicts_activations(schedule) ? 0.0 : 70.0};  // moves of evicted activations
    const double played = spans(schedule, times).makespan;
    for (const Schedule& given : {schedule, with_messages(schedule)}) {
      const Step step = lower(given, std::vector<StageCosts>(num_works(schedule), {unit, unit, unit, 8}));
      EXPECT_EQ(end_of(play_simply(step, {.message_ps = std::llround(times.message)})), std::llround(played))
          << schedule.name;
      EXPECT_TRUE(check_step(step).empty()) << schedule.name;
    }
  });
}

// With Sends::awaited the next computation waits for the message, otherwise not.
TEST(Lower, AwaitedSendsHoldUpTheNextComputation) {
  const Schedule schedule = make_schedule("gpipe", {2, 3, 1});
  const std::vector<StageCosts> costs(2, {10, 10, 10, 8});
  const RankStep free = lower(schedule, costs).of_rank[0];
  const RankStep held = lower(schedule, costs, Sends::awaited).of_rank[0];
  ASSERT_EQ(held.tasks.size(), free.tasks.size());
  ASSERT_EQ(held.tasks[2].op, Op::forward);  // F0, its send, F1
  EXPECT_EQ(free.after_of(free.tasks[2]).size(), 0U);
  ASSERT_EQ(held.after_of(held.tasks[2]).size(), 1U);
  EXPECT_EQ(held.after_of(held.tasks[2])[0], 1U);
}

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
