#include "schedules/step/unfold.h"

#include <gtest/gtest.h>

#include "schedules/generators/catalogue.h"
#include "schedules/passes/recipes_for_tests.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/step/check_step.h"

namespace lockstep::schedules {
namespace {

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
