#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/building_blocks.h"
#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/text.h"
#include "core/error.h"
#include "testing/collectives/every_choice.h"
#include "testing/core/thrown.h"

namespace lockstep::algorithms {
namespace {

using collectives::Kind;

std::string error_of(Kind kind, std::string_view text) {
  return core::refusal_of([&] { parse_choice(kind, text); });
}

TEST(Choice, DefaultsAreFilledInAndLeftOutOfTheLabel) {
  const Choice choice = parse_choice(Kind::all_reduce, "ring");
  EXPECT_EQ(choice.options.at("lanes"), 1);
  EXPECT_EQ(choice.options.at("directions"), 1);
  EXPECT_EQ(choice.label(), "ring");
}

TEST(Choice, LabelParsesBack) {
  for (const Choice& choice : every_choice()) {
    const Choice again = parse_choice(choice.algorithm->kind, choice.label());
    EXPECT_EQ(again.algorithm, choice.algorithm);
    EXPECT_EQ(again.options, choice.options) << choice.label();
  }
  EXPECT_EQ(parse_choice(Kind::all_reduce, "ring:lanes=4:directions=2").label(), "ring:directions=2:lanes=4");
}

TEST(Choice, BadTextIsOneLineThatSaysWhatIsAllowed) {
  EXPECT_EQ(error_of(Kind::send_recv, "ring"), "--algo: send_recv has no algorithm 'ring'; allowed: direct");
  EXPECT_EQ(error_of(Kind::all_reduce, "ring:lanes=9"),
            "--algo: ring:lanes=9: out of range; allowed: 1 to 8 (concurrent rings in each direction)");
  EXPECT_EQ(error_of(Kind::all_reduce, "ring:width=2"),
            "--algo: 'width=2' is not an option of ring; options of ring: directions=1..2 lanes=1..8");
  EXPECT_EQ(error_of(Kind::all_reduce, "two_shot:x=1"),
            "--algo: 'x=1' is not an option of two_shot; two_shot has no options");
  for (const char* bad : {"", ":", "ring:", "ring:lanes", "ring:lanes=", "ring:lanes=2x", "ring:lanes=-1", "ring:=2",
                          "ring::lanes=2", "ring:lanes=99999999999", "ring:lanes=2:lanes=3"}) {
    EXPECT_NE(error_of(Kind::all_reduce, bad), "") << "'" << bad << "'";
  }
}

TEST(Choice, RefusalSaysWhatWouldBePossible) {
  EXPECT_EQ(refusal(parse_choice(Kind::all_reduce, "hierarchical:group=3"), 8, 0),
            "group=3 does not divide 8 ranks; possible: 1 2 4 8, or 0 to choose");
  EXPECT_EQ(refusal(parse_choice(Kind::all_reduce, "ring_2d:columns=4"), 12, 0), std::nullopt);
  EXPECT_EQ(refusal(parse_choice(Kind::hypercube, "exchange"), 6, 0),
            "needs a power of two ranks, not 6; nearest: 4 or 8");
  EXPECT_THROW(make_plan(parse_choice(Kind::hypercube, "exchange"), 6, 0), core::Error);
}

TEST(Choice, OnlyWhatIsImpossibleByNatureIsRefused) {
  for (const Algorithm& algorithm : catalogue()) {
    const Choice choice = parse_choice(algorithm.kind, algorithm.name);
    for (int p = 1; p <= 40; ++p) {
      const bool possible = algorithm.kind != Kind::hypercube || (p & (p - 1)) == 0;
      EXPECT_EQ(refusal(choice, p, 0) == std::nullopt, possible) << title(choice) << " " << p;
    }
  }
}

TEST(Choice, PlanCarriesItsLabel) {
  EXPECT_EQ(make_plan(parse_choice(Kind::all_reduce, "tree:radix=4"), 5, 0).algorithm, "tree:radix=4");
  EXPECT_EQ(make_plan(parse_choice(Kind::all_reduce, "tree:radix=4"), 1, 0).algorithm, "tree:radix=4");
}

TEST(Catalogue, EveryCollectiveHasAlgorithmsAndNamesAreUnique) {
  for (const Kind kind : collectives::all_kinds()) {
    std::set<std::string_view> names;
    for (const Algorithm* algorithm : algorithms_of(kind)) {
      EXPECT_TRUE(names.insert(algorithm->name).second) << algorithm->name;
      EXPECT_FALSE(algorithm->idea.empty());
      EXPECT_FALSE(algorithm->source.empty());
    }
    EXPECT_FALSE(names.empty()) << collectives::name_of(kind);
  }
}

TEST(Catalogue, DefaultsAreInRange) {
  for (const Algorithm& algorithm : catalogue()) {
    for (const Option& option : algorithm.options) {
      EXPECT_LE(option.min_value, option.default_value);
      EXPECT_LE(option.default_value, option.max_value);
      EXPECT_FALSE(option.meaning.empty());
    }
  }
}

}  // namespace
TEST(Choice, TunedVariantsAreChoicesThatAreNotTheDefaults) {
  for (const Algorithm& algorithm : catalogue()) {
    for (const std::string& variant : tuned_variants(algorithm.kind)) {
      EXPECT_EQ(parse_choice(algorithm.kind, variant).label(), variant);
    }
  }
  EXPECT_EQ(tuned_variants(Kind::all_reduce),
            (std::vector<std::string>{"ring:lanes=2", "tree:radix=4", "tree:radix=8"}));
}

// The checker proves every algorithm: small numbers of ranks one by one, larger ones by example.
namespace {

// Proves each with one message at a time per channel, and with peers reading each other's memory in place.
void prove(const Choice& choice, int num_ranks, int& proved) {
  if (refusal(choice, num_ranks, 0)) return;
  for (const int root : roots_to_try(choice.algorithm->kind, num_ranks)) {
    const plan::Plan plan = make_plan(choice, num_ranks, root);
    for (const int capacity : {1, plan::kReadInPlace}) {
      const plan::CheckResult result = plan::check(plan, {.capacity = capacity});
      ASSERT_TRUE(result.ok()) << title(choice) << ", " << num_ranks << " ranks, root " << root << ", capacity "
                               << capacity << ":\n"
                               << result.text();
      ++proved;
    }
  }
}

TEST(Proof, EveryChoiceFor1To33Ranks) {
  int proved = 0;
  for (const Choice& choice : every_choice()) {
    for (int num_ranks = 1; num_ranks <= 33; ++num_ranks) {
      prove(choice, num_ranks, proved);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(proved, 5000);
  RecordProperty("proved", proved);
}

TEST(Proof, EveryChoiceFor64And100And128Ranks) {
  int proved = 0;
  for (const Choice& choice : every_choice()) {
    for (const int num_ranks : {64, 100, 128}) {
      prove(choice, num_ranks, proved);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(proved, 300);
}

TEST(Proof, EveryPlanComesBackFromItsText) {
  for (const Choice& choice : every_choice()) {
    for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
      if (refusal(choice, num_ranks, 0)) continue;
      const plan::Plan plan = make_plan(choice, num_ranks, 0);
      EXPECT_EQ(plan::parse_plan(plan::to_text(plan)), plan) << title(choice) << ", " << num_ranks << " ranks";
    }
  }
}

// In place, with peers reading in place, these cannot work; executors run them from a copy. docs/metrics.md lists them.
bool overwrites_what_peers_read(const Choice& choice, int num_ranks) {
  const std::string name = title(choice);
  if (name == "all_reduce recursive_doubling") return num_ranks == 2;
  return name == "all_reduce one_shot" || name == "send_recv direct" || name == "all_to_all pairwise" ||
         name == "all_to_all direct" || name == "all_to_all_v pairwise" || name == "all_to_all_v direct";
}

TEST(Proof, InPlaceExceptWhereNeverPossible) {
  for (const Choice& choice : every_choice()) {
    for (int num_ranks = 2; num_ranks <= 17; ++num_ranks) {
      if (refusal(choice, num_ranks, 0)) continue;
      const plan::Plan plan =
          make_plan(choice, num_ranks, num_ranks / 2 * (collectives::has_root(choice.algorithm->kind)));
      const plan::CheckResult result = plan::check(plan, {.capacity = plan::kReadInPlace, .in_place = true});
      EXPECT_EQ(result.ok(), !overwrites_what_peers_read(choice, num_ranks))
          << title(choice) << ", " << num_ranks << " ranks: " << result.text();
    }
  }
}

// Properties of single algorithms that neither contents nor counts show.

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
  EXPECT_TRUE(core::has(*why, "possible: 1 to 4"));
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

// The contents of each channel's messages, in order: what a plan exchanges, whatever else its lanes do in between.
std::map<std::tuple<int, int, int>, std::vector<plan::Moved>> messages_of(const plan::Plan& plan) {
  const plan::Contents contents = contents_of(plan, {plan::kUnbounded, false});
  const plan::StepIds& ids = contents.ids();
  std::map<std::tuple<int, int, int>, std::vector<plan::Moved>> messages;
  for (const plan::Message& message : match_messages(plan, ids).list) {
    const plan::StepIndex& sender = ids.index(message.send);
    const plan::Step& send = step_at(plan, sender);
    auto& channel = messages[{sender.rank, send.peer, sender.lane}];
    for (int i = 0; i < send.src.count; ++i) channel.push_back(contents.at(message.send, i));
    channel.push_back({-2, send.src.count, false});  // the message's end
  }
  return messages;
}

int chain_of(const plan::Plan& plan) {
  collectives::Operation operation{.kind = plan.kind, .count = plan.chunks_per_block, .root = plan.root};
  return count(plan, contents_of(plan, {plan::kUnbounded, false}), operation).steps;
}

// A plan that is written as MSCCL XML and read back is the same algorithm: right, also in place if it was, with the
// same messages in the same order, and none waits for more others than before. The steps of a lane with one peer in
// each direction stand as before.
TEST(MscclXml, EveryAlgorithmComesBack) {
  int plans = 0;
  int equal = 0;
  for (const Choice& choice : every_choice()) {
    const Kind kind = choice.algorithm->kind;
    if (kind == Kind::all_to_all_v || kind == Kind::send_recv) continue;  // which MSCCL does not have
    for (const int num_ranks : {1, 2, 3, 4, 5, 8}) {
      for (const int root : roots_to_try(kind, num_ranks)) {
        if (refusal(choice, num_ranks, root)) continue;
        const plan::Plan plan = make_plan(choice, num_ranks, root);
        plan::Plan back = plan::parse_msccl(plan::to_msccl(plan), title(choice));
        if (kind == Kind::hypercube) {
          EXPECT_EQ(back.kind, Kind::all_gather);
          back.kind = kind;
        }
        SCOPED_TRACE(title(choice) + " " + std::to_string(num_ranks) + " ranks\n" + to_text(plan) + to_text(back));
        ASSERT_EQ(check(back, {plan::kUnbounded, false}).text(), "ok");
        ASSERT_TRUE(check(back, {plan::kUnbounded, true}).ok() || !check(plan, {plan::kUnbounded, true}).ok());
        ASSERT_EQ(messages_of(back), messages_of(plan));
        ASSERT_LE(chain_of(back), chain_of(plan));
        ++plans;
        equal += back == plan ? 1 : 0;
      }
    }
  }
  EXPECT_GT(plans, 1000);
  EXPECT_GT(equal, plans / 2);
}

}  // namespace
}  // namespace lockstep::algorithms
