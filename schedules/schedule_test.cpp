#include "schedules/schedule.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "schedules/play.h"
#include "testing/core/refusal.h"
#include "testing/core/thrown.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

TEST(ScheduleText, ComesBackAsItWent) {
  for_every_schedule(5, [](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    for (const Schedule& written : {schedule, with_messages(schedule)}) {
      const Schedule read = parse_csv(to_csv(written), "again", schedule.num_pipes());
      EXPECT_EQ(read.of_rank, written.of_rank) << schedule.name;
      EXPECT_EQ(read.rank_of_stage, written.rank_of_stage) << schedule.name;
      EXPECT_EQ(read.num_microbatches, written.num_microbatches) << schedule.name;
    }
  });
}

TEST(ScheduleText, ReadsEmptyCellsAndFusedPairs) {
  const Schedule read = parse_csv("0F0, ,0F1,,\"0B0\"\r\n,1F0,(1F1;1B0)OVERLAP_F_B\n", "file.csv");
  ASSERT_EQ(read.num_ranks(), 2);
  EXPECT_EQ(read.of_rank[0].size(), 3U);
  ASSERT_EQ(read.of_rank[1].size(), 3U);
  EXPECT_TRUE(read.of_rank[1][1].with_next);
  EXPECT_EQ(to_csv(read), "0F0,0F1,0B0\n1F0,(1F1;1B0)OVERLAP_F_B\n");
}

std::string refusal(std::string_view text, std::int32_t pipes = 1) {
  return core::refusal_of([&] { parse_csv(text, "s.csv", pipes); });
}

TEST(ScheduleText, MistakesAreNamedByLineAndColumn) {
  EXPECT_EQ(refusal("0F0,0G1\n").substr(0, 34), "s.csv:1:5: '0G1' is not an action;");
  EXPECT_EQ(refusal("0F0\n1F0,F1\n").substr(0, 33), "s.csv:2:5: 'F1' is not an action;");
  EXPECT_EQ(refusal("(0F0;0B0)OVERLAP\n").substr(0, 11), "s.csv:1:1: ");
  EXPECT_EQ(refusal("0F-1\n").substr(0, 35), "s.csv:1:1: '0F-1' is not an action;");
  EXPECT_EQ(refusal("0F99999999999\n").substr(0, 11), "s.csv:1:1: ");
  EXPECT_EQ(refusal("0F0\n0B0\n"),
            "s.csv:2:1: stage 0 belongs to rank 0, in whose line it appeared first; allowed: one rank per stage");
  EXPECT_EQ(refusal("0F0\n2F0\n"),
            "s.csv: stage 1 has no action, but stage 2 has; allowed: numbers from 0 without a gap");
  EXPECT_EQ(refusal(""), "s.csv: the file has no action; allowed: at least one, such as 0F0");
  EXPECT_EQ(refusal("0F0,0F2\n"),
            "s.csv: microbatch 1 has no action, but microbatch 2 has; allowed: numbers from 0 without a gap");
  EXPECT_EQ(refusal("0F0\n,,\n1F0\n"), "s.csv:2:3: this rank's line has no action; allowed: at least one");
  EXPECT_EQ(refusal("0UNSHARD\n"), "s.csv: the file has no action; allowed: at least one, such as 0F0");
  EXPECT_EQ(refusal("0F\n").substr(0, 33), "s.csv:1:1: '0F' is not an action;");
  EXPECT_EQ(refusal("0STEP\n").substr(0, 36), "s.csv:1:1: '0STEP' is not an action;");
  EXPECT_EQ(refusal("0F0,1F0\n2F0\n"),
            "s.csv: 3 stages on 2 ranks in 1 pipe; allowed: equally many stages per rank and pipe");
}

// Numbers in a file do not decide how much memory is allocated.
TEST(ScheduleText, HugeNumbersAreRefusedAtOnce) {
  EXPECT_EQ(refusal("2000000000F0,0F0\n"),
            "s.csv: stage 1 has no action, but stage 2000000000 has; allowed: numbers from 0 without a gap");
  EXPECT_EQ(refusal("0F0,0F2000000000\n"),
            "s.csv: microbatch 1 has no action, but microbatch 2000000000 has; allowed: numbers from 0 without a gap");
  std::string diagonal;
  for (int k = 0; k < 1000; ++k) diagonal += std::to_string(k) + "F" + std::to_string(k) + ",";
  EXPECT_EQ(refusal(diagonal),
            "s.csv: 1000 actions for 1000 stages and 1000 microbatches; allowed: one forward and backward of each "
            "microbatch on each stage of a pipe");
}

TEST(ScheduleText, BlankLinesAreNoRanks) {
  const Schedule read = parse_csv("\n0F0,0B0\n  \n\r\n1F0,1B0\n\n\n", "s.csv");
  EXPECT_EQ(to_csv(read), "0F0,0B0\n1F0,1B0\n");
}

// Actions on parameters as PyTorch prints and reads them, without a microbatch.
TEST(ScheduleText, WhatIsDoneToParametersComesBackAsItWent) {
  const std::string text = "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n";
  const Schedule read = parse_csv(text, "s.csv");
  EXPECT_EQ(read.of_rank[0].front(), (Action{Op::unshard, 0, kNoMicrobatch}));
  EXPECT_EQ(to_csv(read), text);
  EXPECT_NO_THROW(check_or_throw(read));
  EXPECT_EQ(to_csv(parse_csv("0UNSHARD1,0F0,0F1,0B0,0B1\n", "s.csv")), "0UNSHARD1,0F0,0F1,0B0,0B1\n");
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
  EXPECT_EQ(problem_of("0F0,0B0\n1F0,1B0\n"), "");
  EXPECT_EQ(problem_of("0F0,0I0,0W0\n1F0,1B0\n"), "");
  EXPECT_EQ(problem_of("0F0,0F0,0B0\n1F0,1B0\n"), "0F0 appears a second time");
  EXPECT_EQ(problem_of("0F0,0B0\n1F0\n"), "no backward of microbatch 0 at stage 1");
  EXPECT_EQ(problem_of("0B0\n1F0,1B0\n"), "no forward of microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0F0,0I0\n1F0,1B0\n"), "no weight gradient of microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0F0,0W0\n1F0,1B0\n"), "no input gradient of microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0F0,0I0,0B0,0W0\n1F0,1B0\n"), "both a full and a split backward of microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0B0,0F0\n1F0,1B0\n"), "the backward comes before the forward: microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0F0,0W0,0I0\n1F0,1B0\n"),
            "the weight gradient comes before the input gradient: microbatch 0 at stage 0");
  EXPECT_EQ(problem_of("0F0,0B0\n1F1,1B1\n"), "no forward of microbatch 0 at stage 1");
}

TEST(ScheduleCheck, MessagesThatAreThereAreAllThatAreNeeded) {
  const std::string right = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(problem_of(right), "");
  EXPECT_EQ(problem_of("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), "1RECV_F0: no rank sends this message");
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n"),
            "1F0 comes before the receive of its activations");
  EXPECT_EQ(problem_of("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "0SEND_F0 comes before the action that makes its payload");
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "0SEND_F0 appears a second time");
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0SEND_B0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "0SEND_B0: no stage on another rank exchanges this message");
}

TEST(ScheduleCheck, ACircleIsPrintedWithTheGridAroundIt) {
  // Rank 0 waits for a gradient that depends on a later forward of its own.
  const Schedule schedule = parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "s.csv");
  EXPECT_EQ(core::error_text([&] { check_or_throw(schedule); }),
            "s.csv: rank 0, action 1: deadlock: rank 0 at 0B0 needs the gradient of stage 1, rank 1 at 1F1 needs the "
            "activations of stage 0\n"
            "rank 0     0F0 [0B0] 0F1  0B1\n"
            "rank 1     1F0  1F1  1B0  1B1\n");
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

TEST(TransportCheck, AHangReportsWhereEachRankStands) {
  // Both ranks send first.
  const Schedule schedule = parse_csv(
      "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
      "2F0,2SEND_F0,1RECV_F0,1F0,1B0,1SEND_B0,2RECV_B0,2B0\n",
      "s.csv");
  EXPECT_EQ(hang_of(schedule, {Waiting::blocking}), "rank 0 at 0SEND_F0 to rank 1; rank 1 at 2SEND_F0 to rank 0");
  EXPECT_EQ(hang_of(schedule, {Waiting::buffered, 1}), "");
}

// With slots for all messages no schedule that check() accepts hangs; fewer slots never help.
TEST(TransportCheck, MoreSlotsNeverHang) {
  for_every_schedule(6, [](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    const Schedule lowered = with_messages(schedule);
    bool went = false;
    for (std::int32_t slots : {1, 2, 4, 4 * schedule.num_microbatches}) {
      const bool goes = hang_of(lowered, {Waiting::buffered, slots}).empty();
      EXPECT_TRUE(goes || !went) << schedule.name << " with " << slots;
      went = goes;
    }
    EXPECT_TRUE(went) << schedule.name;
  });
}

PeakActivations peak_of(const std::string& list, double w_share) {
  return count_ranks(parse_csv(list, "list", 1), w_share).front().peak;
}

// One stage: the activations held after each action, with a quarter until W, are written below.
TEST(CountActivations, AWeightGradientsShareIsHeldFromIUntilW) {
  const std::string late = "0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2,0F3,0I3,0W3";
  //                        1   1/4 5/4 1/2 3/2 3/4 1/2 1/4 0   1   1/4 0
  EXPECT_DOUBLE_EQ(peak_of(late, 0.25).until_weight_gradient, 1.5);  // 1.75 if W gave back nothing, 3 if I did not
  EXPECT_DOUBLE_EQ(peak_of(late, 1).until_weight_gradient, 3);
  EXPECT_DOUBLE_EQ(peak_of(late, 0).until_weight_gradient, 1);
  EXPECT_DOUBLE_EQ(peak_of(late, 0.25).until_input_gradient, 1);
}

// A backward that makes more than the forward kept (recomputation) peaks at I, not at F.
TEST(CountActivations, AShareAboveOnePeaksAtTheInputGradient) {
  EXPECT_DOUBLE_EQ(peak_of("0F0,0I0,0W0,0F1,0I1,0W1", 3).until_weight_gradient, 3);
  EXPECT_DOUBLE_EQ(peak_of("0F0,0F1,0I0,0W0,0I1,0W1", 3).until_weight_gradient, 4);
}

TEST(CountActivations, AWholeBackwardLeavesNothing) {
  for (const double w_share : {0.0, 0.25, 1.0}) {
    EXPECT_DOUBLE_EQ(peak_of("0F0,0B0,0F1,0F2,0B1,0B2", w_share).until_weight_gradient, 2);
  }
}

}  // namespace
}  // namespace lockstep::schedules
