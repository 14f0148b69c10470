#include "schedules/check.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "schedules/generators/every_schedule.h"
#include "schedules/play.h"
#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

std::string first_problem(std::string_view csv) {
  const auto problems = check(parse_csv(csv, "s.csv"));
  return problems.empty() ? "" : problems.front().what;
}

TEST(ScheduleCheck, AllOfTheCatalogueIsRight) {
  int checked = 0;
  for_every_schedule(9, [&](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    EXPECT_NO_THROW(check_or_throw(schedule));
    ++checked;
  });
  EXPECT_GT(checked, 1000);
}

TEST(ScheduleCheck, MistakesAreFound) {
  EXPECT_EQ(first_problem("0F0,0B0\n1F0,1B0\n"), "");
  EXPECT_EQ(first_problem("0F0,0I0,0W0\n1F0,1B0\n"), "");
  EXPECT_EQ(first_problem("0F0,0F0,0B0\n1F0,1B0\n"), "0F0 appears a second time");
  EXPECT_EQ(first_problem("0F0,0B0\n1F0\n"), "no backward of microbatch 0 at stage 1");
  EXPECT_EQ(first_problem("0B0\n1F0,1B0\n"), "no forward of microbatch 0 at stage 0");
  EXPECT_EQ(first_problem("0F0,0I0\n1F0,1B0\n"), "no weight gradient of microbatch 0 at stage 0");
  EXPECT_EQ(first_problem("0F0,0W0\n1F0,1B0\n"), "no input gradient of microbatch 0 at stage 0");
  EXPECT_EQ(first_problem("0F0,0I0,0B0,0W0\n1F0,1B0\n"), "both a full and a split backward of microbatch 0 at stage 0");
  EXPECT_EQ(first_problem("0B0,0F0\n1F0,1B0\n"), "the backward comes before the forward: microbatch 0 at stage 0");
  EXPECT_EQ(first_problem("0F0,0W0,0I0\n1F0,1B0\n"),
            "the weight gradient comes before the input gradient: microbatch 0 at stage 0");
  EXPECT_EQ(first_problem("0F0,0B0\n1F1,1B1\n"), "no forward of microbatch 0 at stage 1");
}

TEST(ScheduleCheck, MessagesThatAreThereAreAllThatAreNeeded) {
  const std::string right = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(first_problem(right), "");
  EXPECT_EQ(first_problem("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), "1RECV_F0: no rank sends this message");
  EXPECT_EQ(first_problem("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n"),
            "1F0 comes before the receive of its activations");
  EXPECT_EQ(first_problem("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "0SEND_F0 comes before the action that makes its payload");
  EXPECT_EQ(first_problem("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "0SEND_F0 appears a second time");
  EXPECT_EQ(first_problem("0F0,0SEND_F0,0SEND_B0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "0SEND_B0: no stage on another rank exchanges this message");
}

TEST(ScheduleCheck, ACircleIsPrintedWithTheGridAroundIt) {
  // Rank 0 waits for a gradient that depends on a later forward of its own.
  const Schedule schedule = parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "s.csv");
  try {
    check_or_throw(schedule);
    FAIL() << "it hangs";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    EXPECT_STREQ(error.what(),
                 "s.csv: rank 0, action 1: deadlock: rank 0 at 0B0 needs the gradient of "
                 "stage 1, rank 1 at 1F1 needs the activations of stage 0\n"
                 "rank 0     0F0 [0B0] 0F1  0B1\n"
                 "rank 1     1F0  1F1  1B0  1B1\n");
  }
}

// Lists that pass the check run to their end; for all others the problem has a valid rank and index.
TEST(ScheduleCheck, RandomChangesAreFoundOrDoNoHarm) {
  core::Random random(5);
  int found = 0;
  int harmless = 0;
  for_every_schedule(5, [&](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    Schedule changed = schedule;
    auto& list = changed.of_rank[random.below(changed.of_rank.size())];
    std::swap(list[random.below(list.size())], list[random.below(list.size())]);
    if (random.below(4) == 0) list[random.below(list.size())].microbatch ^= 1;
    const auto problems = check(changed);
    if (!problems.empty()) {
      ++found;
      EXPECT_FALSE(grid_around(changed, problems.front()).empty());
      return;
    }
    ++harmless;
    EXPECT_NO_THROW(play(changed, {}));
  });
  EXPECT_GT(found, 100);
  EXPECT_GT(harmless, 10);
}

}  // namespace
}  // namespace lockstep::schedules
