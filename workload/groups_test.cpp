#include "workload/groups.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lockstep::workload {
namespace {

using Lists = std::vector<std::vector<std::int64_t>>;

Layout sizes(std::int32_t tp, std::int32_t cp, std::int32_t ep, std::int32_t dp, std::int32_t pp) {
  Layout layout;
  layout.tp = tp;
  layout.cp = cp;
  layout.ep = ep;
  layout.dp = dp;
  layout.pp = pp;
  return layout;
}

TEST(Groups, AreMegatronsLists) {
  const Layout layout = sizes(2, 1, 1, 2, 4);
  EXPECT_EQ(groups_of(layout, Group::tensor),
            (Lists{{0, 1}, {4, 5}, {8, 9}, {12, 13}, {2, 3}, {6, 7}, {10, 11}, {14, 15}}));
  EXPECT_EQ(groups_of(layout, Group::pipeline), (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  Lists data = groups_of(layout, Group::data);
  std::sort(data.begin(), data.end());
  EXPECT_EQ(data, (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(layout, Group::data), data) << "in this order, too";
  EXPECT_EQ(groups_of(layout, Group::model), (Lists{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
}

TEST(Groups, OfAKindHaveEveryRankOnceAndDifferInTheirCoordinateOnly) {
  const Layout layout = sizes(2, 3, 2, 4, 2);
  for (const Group kind : {Group::tensor, Group::context, Group::data, Group::gradients, Group::expert,
                           Group::expert_data, Group::pipeline, Group::model, Group::shards, Group::replicas}) {
    std::set<std::int64_t> seen;
    for (const auto& group : groups_of(layout, kind)) {
      for (const std::int64_t rank : group) EXPECT_TRUE(seen.insert(rank).second) << rank;
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), layout.ranks());
  }
  for (const auto& group : groups_of(layout, Group::expert_data)) {
    for (const std::int64_t rank : group) {
      EXPECT_EQ(coordinates_of(layout, rank).ep, coordinates_of(layout, group.front()).ep);
      EXPECT_EQ(coordinates_of(layout, rank).tp, coordinates_of(layout, group.front()).tp);
      EXPECT_EQ(coordinates_of(layout, rank).pp, coordinates_of(layout, group.front()).pp);
    }
  }
  for (const auto& group : groups_of(layout, Group::context)) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      EXPECT_EQ(coordinates_of(layout, group[i]).cp, static_cast<std::int64_t>(i));
      EXPECT_EQ(coordinates_of(layout, group[i]).dp, coordinates_of(layout, group.front()).dp);
    }
  }
}

TEST(Groups, CoordinatesMakeTheRankAgain) {
  const Layout l = sizes(4, 2, 2, 3, 5);
  for (std::int64_t rank = 0; rank < l.ranks(); ++rank) {
    const Coordinates at = coordinates_of(l, rank);
    EXPECT_EQ(at.tp + l.tp * (at.cp + l.cp * (at.dp + l.dp * at.pp)), rank);
    EXPECT_EQ((at.cp + l.cp * at.dp) % l.ep, at.ep);
  }
}

TEST(Groups, OfHybridShardsAreNeighbours) {
  Layout layout = sizes(1, 1, 1, 8, 1);
  layout.zero = 3;
  layout.shard_ranks = 4;
  EXPECT_EQ(groups_of(layout, Group::shards), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups_of(layout, Group::replicas), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

// Opposite pipes (Chimera): the first place of one is the last of the other, and both have the same parameters.
TEST(Groups, OfDataRanksJoinOppositePipes) {
  Layout layout = sizes(2, 1, 1, 2, 4);
  layout.schedule = "chimera";
  layout.microbatches = 4;
  for (const schedules::Group& group : groups_of_places(parse_model("nano"), layout, schedule_of(layout))) {
    if (group.kind != schedules::GroupKind::data) continue;
    const std::int64_t first = group.ranks.front() * 4;
    const std::vector<RankSet> runs = members_of(layout, group, first + 1);
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0].first, first + 1);
    EXPECT_EQ(runs[0].stride, 2);
    EXPECT_EQ(runs[1].first, (3 - group.ranks.front()) * 4 + 1);
    EXPECT_EQ(runs[0].count + runs[1].count, group.members);
  }
}

}  // namespace
}  // namespace lockstep::workload
