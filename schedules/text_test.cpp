#include "schedules/text.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "schedules/check.h"
#include "schedules/generators/every_schedule.h"
#include "schedules/messages.h"

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
  try {
    parse_csv(text, "s.csv", pipes);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    return error.what();
  }
  return "";
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
            "s.csv: 3 stages on 2 ranks in 1 pipes; allowed: equally many stages per rank and pipe");
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

}  // namespace
}  // namespace lockstep::schedules
