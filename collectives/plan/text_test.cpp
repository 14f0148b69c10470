#include "collectives/plan/text.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "testing/core/thrown.h"
#include "testing/plans/plans.h"

namespace lockstep::plan {
namespace {

std::string complaint(const std::string& text) {
  return core::refusal_of([&] { parse_plan(text, "f.plan"); });
}

const std::string kHead = "plan all_reduce x ranks=2 root=0 chunks=1 scratch=1\n";

TEST(Text, Steps) {
  EXPECT_EQ(to_text(Step{Op::send, 1, input(0, 2), {}, {}}), "send input[0..1] -> 1");
  EXPECT_EQ(to_text(Step{Op::recv, 3, {}, output(2), {}}), "recv output[2] <- 3");
  EXPECT_EQ(to_text(Step{Op::recv_reduce, 3, input(1), output(1), {{0, 4}}}),
            "recv_reduce output[1] <- 3 + input[1] after 0.4");
  EXPECT_EQ(to_text(Step{Op::copy, -1, input(0), output(0), {{1, 4}, {2, 0}}}),
            "copy output[0] <- input[0] after 1.4, 2.0");
  EXPECT_EQ(to_text(Step{Op::copy, -1, input(1), scratch(0), {}}), "copy scratch[0] <- input[1]");
  EXPECT_EQ(to_text(Step{Op::reduce, -1, scratch(0), output(0), {}}), "reduce output[0] += scratch[0]");
}

TEST(Text, EveryPlanComesBackEqual) {
  std::vector<Plan> plans;
  for (int n = 1; n <= 9; ++n) {
    plans.push_back(ring_plan(n, 2));
    plans.push_back(chain_plan(n, n / 2, 3));
    plans.push_back(two_lane_plan(n));
    plans.push_back(direct_all_to_all_plan(collectives::Kind::all_to_all_v, n, 2));
  }
  for (const int n : {1, 2, 4, 8}) plans.push_back(exchange_plan(n));
  for (const Plan& plan : plans) EXPECT_EQ(parse_plan(to_text(plan)), plan) << to_text(plan);
}

TEST(Text, WrongPlansComeBackEqualToo) {
  PlanBuilder plan(collectives::Kind::gather, 3, 2, 4);
  plan.send(0, -7, input(-3, 0), 2, {0, 11});  // lanes 0 and 1 are empty
  plan.copy(1, scratch(5, 1000000), output(9));
  Plan odd = plan.finish("");
  odd.ranks[1].lanes[0][0].after = {{3, 1}, {0, 7}, {3, 1}};
  EXPECT_EQ(parse_plan(to_text(odd)), odd) << to_text(odd);
}

TEST(Text, SpacesAndCommentsAreFree) {
  const Plan plan = parse_plan("# a plan\n\n" + kHead + "rank 1 lane 0   # the second\r\n\tsend   input[0]->0\n");
  ASSERT_EQ(plan.ranks[1].lanes.size(), 1U);
  EXPECT_EQ(plan.ranks[1].lanes[0][0], (Step{Op::send, 0, input(0), {}, {}}));
  EXPECT_TRUE(plan.ranks[0].lanes.empty());
}

TEST(Text, TheLineOfEveryStepIsKnown) {
  StepLines lines;
  parse_plan("# a plan\n" + kHead +
                 "rank 1 lane 0\n\n  send input[0] -> 0\n  recv output[0] <- 0\nrank 1 lane 1\nrank 0 lane 0\n"
                 "copy output[0] <- input[0]\n",
             "f.plan", &lines);
  EXPECT_EQ(lines, (StepLines{{{9}}, {{5, 6}, {}}}));
}

TEST(Text, ErrorsNameLineColumnAndWhatIsAllowed) {
  EXPECT_EQ(complaint(""),
            "f.plan: holds no plan; its first line must be 'plan COLLECTIVE NAME ranks=N root=R chunks=K scratch=S'");
  EXPECT_EQ(complaint("rank 0 lane 0\n").substr(0, 40), "f.plan:1:1: found 'rank'; allowed: 'plan");
  EXPECT_EQ(complaint("plan all_red x\n").substr(0, 53), "f.plan:1:6: found 'all_red'; allowed: all_reduce, red");
  EXPECT_EQ(complaint("plan all_reduce x ranks=0 root=0 chunks=1 scratch=0"),
            "f.plan:1:19: found 'ranks=0'; allowed: ranks from 1 to 1048576");
  EXPECT_EQ(complaint("plan all_reduce x ranks=2 root=0 chunks=one"),
            "f.plan:1:41: found 'one'; allowed: value of chunks (an integer)");
  EXPECT_EQ(complaint(kHead + "send input[0] -> 1"), "f.plan:2:1: found 'send'; allowed: 'rank R lane L'");
  EXPECT_EQ(complaint(kHead + "rank 2 lane 0"), "f.plan:2:6: found '2'; allowed: 0..1");
  EXPECT_EQ(complaint(kHead + "rank 1 lane 1"), "f.plan:2:13: found '1'; allowed: 0 (a rank's lanes come in order)");
  const std::string lane = kHead + "rank 0 lane 0\n";
  EXPECT_EQ(complaint(lane + "  sent input[0] -> 1"),
            "f.plan:3:3: found 'sent'; allowed: 'rank R lane L', send, recv, recv_reduce, copy or reduce");
  EXPECT_EQ(complaint(lane + "  send inputs[0] -> 1"), "f.plan:3:13: found 's[0]'; allowed: '['");
  EXPECT_EQ(complaint(lane + "  send data[0] -> 1"),
            "f.plan:3:8: found 'data[0]'; allowed: input[..], output[..] or scratch[..]");
  EXPECT_EQ(complaint(lane + "  send input[0] <- 1"), "f.plan:3:17: found '<-'; allowed: '->'");
  EXPECT_EQ(complaint(lane + "  send input[0] ->"), "f.plan:3:19: the line ends; allowed: peer rank (an integer)");
  EXPECT_EQ(complaint(lane + "  send input[0] -> 1 then"),
            "f.plan:3:22: found 'then'; allowed: nothing more on this line");
  EXPECT_EQ(complaint(lane + "  send input[0] -> 1 after 1"), "f.plan:3:29: the line ends; allowed: '.'");
  EXPECT_EQ(complaint(lane + "  send input[-2..2147483647] -> 1"),
            "f.plan:3:18: found '2147483647]'; allowed: a chunk nearer to the first");
  EXPECT_EQ(complaint(lane + "  send input[0] -> 1 after -1.2"),
            "f.plan:3:28: found '-1.2'; allowed: a lane from 0 on");
  EXPECT_EQ(complaint("plan all_reduce a\vb ranks=2"), "f.plan:1:17: found 'a\vb'; allowed: a name of one word");
  EXPECT_TRUE(core::has(complaint("plan all_reduce x ranks=2 root=0 chunks=2000000000 scratch=0"), "too many"));
  EXPECT_EQ(complaint(lane + "  send input[99999999999] -> 1"),
            "f.plan:3:14: found '99999999999]'; allowed: first chunk (an integer)");
}

// Any prefix of a good text, and any text with one byte changed, is parsed or refused with a usage Error.
TEST(Text, BrokenTextsAreRefusedWithOneLine) {
  const std::string good = to_text(two_lane_plan(3));
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_EQ(complaint(good.substr(0, i)).find('\n'), std::string::npos);
    for (const char c : {' ', '\n', '[', '9', '-', '#', 'x'}) {
      std::string broken = good;
      broken[i] = c;
      EXPECT_EQ(complaint(broken).find('\n'), std::string::npos);
    }
  }
}

TEST(Draw, Ring) {
  const Plan plan = ring_plan(3);
  EXPECT_EQ(draw(plan, contents_of(plan)),
            "all_reduce ring, 3 ranks, 3 chunks per block: 4 rounds\n"
            "rank  1     2     3    4\n"
            "   0  0+>1  2+>1  1>1  0>1\n"
            "   1  1+>2  0+>2  2>2  1>2\n"
            "   2  2+>0  1+>0  0>0  2>0\n");
}

TEST(Draw, ChainNamesWhoseChunks) {
  const Plan plan = chain_plan(3, 1, 2);
  EXPECT_EQ(draw(plan, contents_of(plan)),
            "broadcast chain, 3 ranks, 2 chunks per block: 3 rounds\n"
            "rank  1      2      3\n"
            "   0  .      .      .\n"
            "   1  1.0>2  1.1>2  .\n"
            "   2  .      1.0>0  1.1>0\n");
}

TEST(Draw, RunsOfChunksAndSingleRank) {
  const Plan plan = direct_all_to_all_plan(collectives::Kind::all_to_all_v, 2, 3);
  EXPECT_TRUE(core::has(draw(plan, contents_of(plan)), "0.3-5>1"));
  const Plan alone = ring_plan(1);
  EXPECT_EQ(draw(alone, contents_of(alone)), "all_reduce ring, 1 ranks, 1 chunks per block: 0 rounds\nrank\n   0\n");
}

}  // namespace
}  // namespace lockstep::plan
