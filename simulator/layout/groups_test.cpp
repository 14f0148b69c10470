#include "simulator/layout/groups.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lockstep::simulator {
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

TEST(Groups, LieOnLevels) {
  Machine machine;
  machine.levels = {{.name = "nvlink", .ranks = 8}, {.name = "rail", .ranks = 32}, {.name = "spine", .ranks = 64}};
  const auto lies = [&](const Layout& layout, Group kind) {
    return members_a_level(machine, group_of(layout, kind, 0));
  };
  const Layout megatron = sizes(8, 1, 1, 6, 64);
  EXPECT_EQ(lies(megatron, Group::tensor), (std::vector<std::int64_t>{8, 8, 8}));
  EXPECT_EQ(lies(megatron, Group::gradients), (std::vector<std::int64_t>{1, 4, 6}));
  EXPECT_EQ(lies(megatron, Group::pipeline), (std::vector<std::int64_t>{1, 1, 64}));
  const Layout data_only = sizes(1, 1, 1, 20, 1);
  EXPECT_EQ(lies(data_only, Group::gradients), (std::vector<std::int64_t>{8, 20, 20}));
  EXPECT_EQ(lies(sizes(3, 1, 1, 20, 1), Group::tensor), (std::vector<std::int64_t>{3, 3, 3}));
  EXPECT_EQ(members_a_level(machine, {6, 1, 3}), (std::vector<std::int64_t>{2, 3, 3})) << "6 7 | 8";
}

// The same by looking at every member.
TEST(Groups, LieOnLevelsAsEveryMemberSays) {
  Machine machine;
  machine.levels = {{.name = "node", .ranks = 8}, {.name = "leaf", .ranks = 48}, {.name = "spine", .ranks = 96}};
  for (std::int64_t first = 0; first < 10; ++first) {
    for (std::int64_t stride = 1; stride < 20; ++stride) {
      for (const std::int64_t count : {1, 2, 7, 40}) {
        const RankSet set{first, stride, count};
        std::vector<std::int64_t> most;
        for (const std::int64_t ranks : {8, 48}) {
          std::map<std::int64_t, std::int64_t> on_switch;
          for (std::int64_t i = 0; i < count; ++i) ++on_switch[set.at(i) / ranks];
          std::int64_t largest = 0;
          for (const auto& [number, members] : on_switch) largest = std::max(largest, members);
          most.push_back(largest);
        }
        most.push_back(count);
        EXPECT_EQ(members_a_level(machine, set), most) << first << " + " << stride << " x " << count;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::simulator
