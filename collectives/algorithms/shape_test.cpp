// Properties of single algorithms that neither contents nor counts show.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/numbers.h"
#include "collectives/algorithms/pat.h"
#include "collectives/algorithms/tree.h"

namespace lockstep::algorithms {
namespace {

using collectives::Kind;

const plan::Lane& lane_of(const plan::Plan& plan, int rank, int lane) {
  return plan.ranks[static_cast<std::size_t>(rank)].lanes[static_cast<std::size_t>(lane)];
}

// Children of a rank in a lane: the peers from which it receives data to sum.
std::set<int> children_in(const plan::Plan& plan, int rank, int lane) {
  std::set<int> children;
  if (plan.ranks[static_cast<std::size_t>(rank)].lanes.size() <= static_cast<std::size_t>(lane)) return children;
  for (const plan::Step& step : lane_of(plan, rank, lane)) {
    if (step.op == plan::Op::recv_reduce) children.insert(step.peer);
  }
  return children;
}

TEST(DoubleTree, NoRankIsInnerInBothTrees) {
  constexpr int kUpOfFirst = 0;
  constexpr int kUpOfSecond = 2;
  for (int p = 2; p <= 128; ++p) {
    const plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, "double_tree:chunks=1"), p, 0);
    for (int r = 0; r < p; ++r) {
      const std::set<int> first = children_in(plan, r, kUpOfFirst);
      const std::set<int> second = children_in(plan, r, kUpOfSecond);
      EXPECT_TRUE(first.empty() || second.empty()) << "rank " << r << " of " << p;
      EXPECT_LE(std::max(first.size(), second.size()), 2U) << "rank " << r << " of " << p;
    }
  }
}

TEST(DoubleTree, RootedTreesHaveNoSharedInnerRankBelowTheRoot) {
  for (int p = 2; p <= 64; ++p) {
    const plan::Plan plan = make_plan(parse_choice(Kind::reduce, "double_tree:chunks=1"), p, p / 2);
    for (int r = 0; r < p; ++r) {
      if (r == p / 2) continue;
      EXPECT_TRUE(children_in(plan, r, 0).empty() || children_in(plan, r, 1).empty()) << "rank " << r << " of " << p;
    }
  }
}

TEST(InOrderTree, LeavesAreOddAndDepthIsLogarithmic) {
  for (int n = 1; n <= 200; ++n) {
    std::vector<int> children(static_cast<std::size_t>(n) + 1, 0);
    for (int y = 1; y <= n; ++y) ++children[static_cast<std::size_t>(in_order_parent(y, n))];
    EXPECT_EQ(children[0], 1) << "one top";
    for (int y = 1; y <= n; ++y) {
      EXPECT_EQ(children[static_cast<std::size_t>(y)] == 0, y % 2 == 1);
      int depth = 0;
      for (int up = y; in_order_parent(up, n) != 0; up = in_order_parent(up, n)) ++depth;
      EXPECT_LE(depth, log2_of_power(floor_power_of_two(n)));
    }
  }
}

// A (1 + lg D) slots, the advantage of PAT: for bounded aggregation the buffer grows with lg p only.
TEST(Pat, BufferIsLogarithmic) {
  for (const Kind kind : {Kind::reduce_scatter, Kind::all_gather}) {
    for (const int aggregation : {2, 4, 8}) {
      for (int p = 2 * aggregation; p <= 256; ++p) {
        const Choice choice = parse_choice(kind, "pat:aggregation=" + std::to_string(aggregation));
        const int spacing = ceil_power_of_two(p) / aggregation;
        EXPECT_LE(make_plan(choice, p, 0).scratch_chunks, aggregation * (1 + log2_of_power(spacing))) << p;
      }
    }
  }
}

// The trees' roots use distinct slots, every offset has a slot, and only the last offset can be beyond p.
TEST(Pat, TreesCoverEveryOffsetOnce) {
  for (int p = 2; p <= 200; ++p) {
    for (const int aggregation : {0, 1, 2, 4, 16}) {
      const PatTrees trees(p, aggregation);
      std::set<int> offsets;
      int found = 0;
      for (int inner = 0; inner < trees.inner_end(); ++inner) {
        for (int slot = 0; slot < trees.count_at(inner); ++slot, ++found) offsets.insert(trees.offset(slot) + inner);
      }
      EXPECT_EQ(found, p);
      EXPECT_EQ(offsets.size(), static_cast<std::size_t>(p));
      EXPECT_EQ(*offsets.rbegin(), p - 1);
    }
  }
}

// The first message goes to the farthest peer and is the smallest.
TEST(Pat, FarPeersComeFirst) {
  const plan::Plan plan = make_plan(parse_choice(Kind::all_gather, "pat"), 64, 0);
  int last_distance = 64;
  int last_count = 0;
  for (const plan::Step& step : lane_of(plan, 0, 0)) {
    if (step.op != plan::Op::send) continue;
    EXPECT_LT(step.peer, last_distance);
    EXPECT_GT(step.src.count, last_count);
    last_distance = step.peer;
    last_count = step.src.count;
  }
  EXPECT_EQ(last_count, 32);
}

// Multi-source fusion needs the sum to be one run of steps on one destination.
TEST(TwoShot, SumsItsPieceInOneRun) {
  const int p = 5;
  const plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, "two_shot"), p, 0);
  for (int r = 0; r < p; ++r) {
    const plan::Lane& lane = lane_of(plan, r, 0);
    const auto is_sum = [](const plan::Step& step) { return step.op == plan::Op::recv_reduce; };
    const auto first = std::find_if(lane.begin(), lane.end(), is_sum);
    ASSERT_NE(first, lane.end());
    EXPECT_EQ(first->peer, (r + 1) % p);
    EXPECT_EQ(first->src, plan::input(r));
    EXPECT_EQ(std::count_if(lane.begin(), lane.end(), is_sum), p - 1);
    for (int i = 0; i < p - 1; ++i) {
      EXPECT_TRUE(is_sum(first[i]));
      EXPECT_EQ(first[i].dst, plan::output(r));
    }
  }
}

plan::Plan unnamed(const char* choice, int num_ranks) {
  plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, choice), num_ranks, 0);
  plan.algorithm.clear();
  return plan;
}

// With one server everything goes through rank 0; with as many servers as ranks, each rank sums a piece.
TEST(Server, IsRootAndTwoShotAtItsEnds) {
  for (int p = 2; p <= 17; ++p) {
    EXPECT_EQ(unnamed("server:servers=1", p), unnamed("root", p)) << p;
    EXPECT_EQ(unnamed(("server:servers=" + std::to_string(p)).c_str(), p), unnamed("two_shot", p)) << p;
  }
}

TEST(Server, RefusesMoreServersThanRanks) {
  EXPECT_FALSE(refusal(parse_choice(Kind::all_reduce, "server:servers=5"), 5, 0));
  const auto why = refusal(parse_choice(Kind::all_reduce, "server:servers=5"), 4, 0);
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("possible: 1 to 4"), std::string::npos) << *why;
}

// Hosts of neighbouring ranks have equal numbers of servers; or the last ranks are servers.
TEST(Server, SpreadsItsServersOrTakesTheLastRanks) {
  for (const bool last : {false, true}) {
    const std::string choice = "server:servers=4:last=" + std::to_string(last ? 1 : 0);
    const plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, choice), 16, 0);
    for (int r = 0; r < 16; ++r) {
      const plan::Lane& lane = lane_of(plan, r, 0);
      const bool sums = std::any_of(lane.begin(), lane.end(),
                                    [](const plan::Step& step) { return step.op == plan::Op::recv_reduce; });
      EXPECT_EQ(sums, last ? r >= 12 : r % 4 == 0) << r;
    }
  }
}

}  // namespace
}  // namespace lockstep::algorithms
