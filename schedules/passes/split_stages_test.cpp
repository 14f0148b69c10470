#include "schedules/passes/split_stages.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "schedules/passes/steps_for_tests.h"
#include "schedules/step/lower.h"

namespace lockstep::schedules {
namespace {

constexpr Piece kernel(Op op, std::int32_t part, std::int64_t ps) {
  return {.op = op, .part = part, .amount = ps};
}
constexpr Piece reduce(std::int32_t part, bool beside_next = false) {
  return {.op = Op::layer_collective,
          .part = part,
          .amount = 64,
          .comm = Comm::all_reduce,
          .group = GroupKind::tensor,
          .beside_next = beside_next};
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
  const RankStep& behind = step.of_rank[1];
  EXPECT_EQ(behind.tasks[0].op, Op::recv_activations);
  EXPECT_EQ(after(behind, 1), std::vector<std::uint32_t>({0}));
}

TEST(SplitStages, ACollectiveBesideTheNextKernelIsAwaitedAfterIt) {
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
  try {
    split_stages(step, std::vector<StageRecipe>(2, recipe));
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_STREQ(error.what(),
                 "the recipe of stage 1 needs a group of kind tensor, and rank 1 is in none; allowed: one group of "
                 "each kind that is used, a rank");
  }
  EXPECT_THROW(split_stages(step, std::vector<StageRecipe>(1)), core::Error);
}

}  // namespace
}  // namespace lockstep::schedules
