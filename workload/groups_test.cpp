#include "workload/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lockstep::workload {
namespace {

using schedules::GroupKind;
using Members = std::vector<std::int64_t>;
using Groups = std::set<Members>;

Layout sizes(std::int32_t tp, std::int32_t cp, std::int32_t ep, std::int32_t dp, std::int32_t pp) {
  return {.dp = dp, .tp = tp, .pp = pp, .cp = cp, .ep = ep, .microbatches = pp};
}

// The groups of a kind, by asking each rank for the members of its own.
Groups groups_of(const Layout& layout, GroupKind kind, const char* model = "mixtral-8x7b") {
  Groups groups;
  for (const schedules::Group& folded : groups_of_places(parse_model(model), layout, schedule_of(layout))) {
    if (folded.kind != kind) continue;
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      const std::int32_t place = coordinates_of(layout, rank).pp;
      if (std::find(folded.ranks.begin(), folded.ranks.end(), place) == folded.ranks.end()) continue;
      Members members;
      for (const RankSet& run : members_of(layout, folded, rank)) {
        for (std::int64_t i = 0; i < run.count; ++i) members.push_back(run.at(i));
      }
      EXPECT_EQ(std::count(members.begin(), members.end(), rank), 1) << rank;
      EXPECT_EQ(static_cast<std::int64_t>(members.size()), folded.members);
      groups.insert(members);
    }
  }
  return groups;
}

TEST(Groups, AreMegatronsLists) {
  const Layout layout = sizes(2, 1, 1, 2, 4);
  EXPECT_EQ(groups_of(layout, GroupKind::tensor),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::data),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::embedding), Groups{}) << "mixtral's head has a matrix of its own";
}

// Four nodes of two ranks each: a token goes from a node to another between ranks in the same place, and on within one.
TEST(Groups, OfExpertRanksAreNodesAndPlacesInThem) {
  Layout layout = sizes(1, 1, 8, 1, 1);
  layout.dp = layout.ep = 8;
  layout.dispatch_tokens = true;
  const char* const model = "mixtral-8x7b,expert_groups=4";
  EXPECT_EQ(groups_of(layout, GroupKind::expert_group, model), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::expert_groups, model), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::expert_groups), Groups{}) << "without groups of experts there is one hop";
}

// Two squares of tensor ranks for each of two data ranks, numbered row by row.
TEST(Groups, OfAGridAreItsRowsColumnsAndDepths) {
  Layout layout = sizes(8, 1, 1, 2, 1);
  layout.grid = parse_grid("2x2x2");
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_row),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_column),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_depth),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  layout.grid = parse_grid("2.5d:2x2x2");
  layout.order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp};
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_row),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  layout.tp = 4;
  layout.grid = parse_grid("2x2");
  EXPECT_EQ(groups_of(layout, GroupKind::tensor_depth), Groups{}) << "a square has no depth";
}

// Members of a group differ in one coordinate.
TEST(Groups, OfAKindHaveEveryRankOnceAndDifferInTheirCoordinateOnly) {
  const Layout layout = sizes(2, 3, 2, 4, 2);
  struct Differs {
    GroupKind kind;
    bool tp, line, pp;
  };
  for (const Differs& differs :
       {Differs{GroupKind::tensor, true, false, false}, Differs{GroupKind::context, false, true, false},
        Differs{GroupKind::expert, false, true, false}, Differs{GroupKind::expert_data, false, true, false},
        Differs{GroupKind::data, false, true, false}, Differs{GroupKind::world, true, true, true}}) {
    std::set<std::int64_t> seen;
    for (const Members& group : groups_of(layout, differs.kind)) {
      const Coordinates first = coordinates_of(layout, group.front());
      for (std::size_t i = 0; i < group.size(); ++i) {
        EXPECT_TRUE(seen.insert(group[i]).second) << group[i];
        const Coordinates at = coordinates_of(layout, group[i]);
        EXPECT_TRUE(differs.tp || at.tp == first.tp) << name_of(differs.kind);
        EXPECT_TRUE(differs.line || (at.cp == first.cp && at.dp == first.dp)) << name_of(differs.kind);
        EXPECT_TRUE(differs.pp || at.pp == first.pp) << name_of(differs.kind);
        EXPECT_TRUE(differs.kind != GroupKind::expert_data || at.ep == first.ep);
        if (differs.kind != GroupKind::context) continue;
        EXPECT_EQ(at.cp, static_cast<std::int64_t>(i));
        EXPECT_EQ(at.dp, first.dp);
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), layout.ranks()) << name_of(differs.kind);
  }
}

TEST(Groups, CoordinatesMakeTheRankAgain) {
  Layout l = sizes(4, 2, 2, 3, 5);
  for (const bool context_first : {true, false}) {
    if (!context_first) l.order = {Axis::dp, Axis::pp, Axis::cp, Axis::tp};
    for (std::int64_t rank = 0; rank < l.ranks(); ++rank) {
      const Coordinates at = coordinates_of(l, rank);
      EXPECT_EQ(rank_at(l, at), rank);
      EXPECT_EQ((context_first ? at.cp + l.cp * at.dp : at.dp + l.dp * at.cp) % l.ep, at.ep);
    }
  }
}

// In any order of the axes a kind's groups have every rank once, ascending, with neighbours in the line next to each
// other; and the group of a rank is the same, asked for by any of its members.
TEST(Groups, OfAnyOrderDivideTheRanks) {
  Layout layout = sizes(2, 3, 2, 4, 2);
  do {
    for (const GroupKind kind : {GroupKind::tensor, GroupKind::context, GroupKind::expert, GroupKind::expert_data,
                                 GroupKind::data, GroupKind::world}) {
      std::set<std::int64_t> seen;
      for (const Members& group : groups_of(layout, kind)) {
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end())) << text_of(layout) << name_of(kind);
        const Coordinates first = coordinates_of(layout, group.front());
        for (const std::int64_t rank : group) {
          EXPECT_TRUE(seen.insert(rank).second) << text_of(layout) << name_of(kind) << rank;
          const Coordinates at = coordinates_of(layout, rank);
          EXPECT_TRUE(kind == GroupKind::world || at.pp == first.pp) << text_of(layout) << name_of(kind);
          EXPECT_TRUE(kind != GroupKind::tensor || (at.cp == first.cp && at.dp == first.dp));
          EXPECT_TRUE(kind != GroupKind::context || (at.tp == first.tp && at.dp == first.dp));
          EXPECT_TRUE(kind != GroupKind::expert_data || (at.tp == first.tp && at.ep == first.ep));
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), layout.ranks()) << text_of(layout) << name_of(kind);
    }
  } while (std::next_permutation(layout.order.begin(), layout.order.end()));
}

TEST(Groups, OfAnOrderAreNumberedByIt) {
  Layout layout = sizes(2, 1, 1, 2, 2);
  layout.order = {Axis::pp, Axis::dp, Axis::cp, Axis::tp};
  EXPECT_EQ(groups_of(layout, GroupKind::tensor), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::data), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(coordinates_of(layout, 1).pp, 1);
}

TEST(Groups, OfHybridShardsAreNeighbours) {
  Layout layout = sizes(1, 1, 1, 8, 1);
  layout.zero = 3;
  layout.shard_ranks = 4;
  EXPECT_EQ(groups_of(layout, GroupKind::data), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups_of(layout, GroupKind::replicas), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Groups, OfSecondaryCopiesAndOfHopsAreNeighboursInASetOfShards) {
  Layout layout = sizes(1, 1, 1, 16, 1);
  layout.zero = 3;
  layout.shard_ranks = 8;
  layout.secondary_ranks = 4;
  EXPECT_EQ(groups_of(layout, GroupKind::secondary),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(secondary_place(layout, coordinates_of(layout, 13)).shard, 1);
  layout.near_ranks = 2;
  EXPECT_EQ(groups_of(layout, GroupKind::near).size(), 8U);
  EXPECT_EQ(groups_of(layout, GroupKind::near).count({10, 11}), 1U);
  EXPECT_EQ(groups_of(layout, GroupKind::far), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
}

// Opposite pipes (Chimera): the first place of one is the last of the other, and both have the same parameters.
TEST(Groups, OfDataRanksJoinOppositePipes) {
  Layout layout = sizes(2, 1, 1, 2, 4);
  layout.schedule = "chimera";
  layout.microbatches = 4;
  for (const schedules::Group& group : groups_of_places(parse_model("nano"), layout, schedule_of(layout))) {
    if (group.kind != schedules::GroupKind::data) continue;
    const std::int64_t first = std::int64_t{group.ranks.front()} * 4;
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
