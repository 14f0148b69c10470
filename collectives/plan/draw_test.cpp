#include "collectives/plan/draw.h"

#include <gtest/gtest.h>

#include "collectives/plan/hand_made_plans.h"

namespace lockstep::plan {
namespace {

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
  EXPECT_NE(draw(plan, contents_of(plan)).find("0.3-5>1"), std::string::npos);
  const Plan alone = ring_plan(1);
  EXPECT_EQ(draw(alone, contents_of(alone)), "all_reduce ring, 1 ranks, 1 chunks per block: 0 rounds\nrank\n   0\n");
}

}  // namespace
}  // namespace lockstep::plan
