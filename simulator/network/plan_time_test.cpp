#include "simulator/network/plan_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/every_choice.h"
#include "core/error.h"
#include "simulator/network/rotation.h"

namespace lockstep::simulator {
namespace {

using collectives::Kind;

// 10 GB/s and 1 us inside switches of 4, 1 GB/s and 5 us between them; no other cost.
Machine two_levels(double oversubscription = 1) {
  Machine machine;
  machine.name = "test";
  machine.device.memory_gbps = 1e12;
  machine.device.memory = {{1, 1}};
  machine.levels = {
      {.name = "node", .ranks = 4, .gbps = 10, .latency_us = 1},
      {.name = "network", .ranks = 1024, .gbps = 1, .latency_us = 5, .oversubscription = oversubscription}};
  return machine;
}
Machine one_level() {
  Machine machine = two_levels();
  machine.levels.erase(machine.levels.begin());
  return machine;
}

plan::Plan plan_of(Kind kind, const char* algorithm, int ranks) {
  return algorithms::make_plan(algorithms::parse_choice(kind, algorithm), ranks, 0);
}

collectives::Operation bytes_of(Kind kind, std::int64_t bytes) {
  return {.kind = kind, .count = bytes, .dtype = core::DType::u8};
}

double us(const PlanTime& time, Kind kind, std::int64_t bytes) {
  return static_cast<double>(time.play_ps(bytes_of(kind, bytes))) / 1e6;
}

TEST(PlanTime, RingTakesItsSteps) {
  const Machine machine = one_level();
  const PlanTime time(plan_of(Kind::all_reduce, "ring", 8), machine);
  EXPECT_EQ(time.ranks_played(), 1);
  EXPECT_NEAR(us(time, Kind::all_reduce, 8000), 2 * 7 * (5 + 1000 / 1e3), 1e-3);
}

TEST(PlanTime, RecursiveDoublingSendsTheWholeVectorInEachStep) {
  const Machine machine = one_level();
  const PlanTime time(plan_of(Kind::all_reduce, "recursive_doubling", 8), machine);
  EXPECT_NEAR(us(time, Kind::all_reduce, 8000), 3 * (5 + 8.0), 1e-3);
}

TEST(PlanTime, OneShotIsBoundByThePort) {
  const Machine machine = one_level();
  const PlanTime time(plan_of(Kind::all_reduce, "one_shot", 4), machine);
  EXPECT_NEAR(us(time, Kind::all_reduce, 8000), 5 + 3 * 8.0, 1e-3);
}

TEST(PlanTime, HierarchicalKeepsTheSlowLevelsShareSmall) {
  const Machine machine = two_levels();
  const PlanTime time(plan_of(Kind::all_reduce, "hierarchical:group=4", 16), machine);
  EXPECT_EQ(time.ranks_played(), 4);
  const double bytes = 16'000'000;
  const double inside_us = 2 * 3 * (1 + bytes / 4 / 10e3);
  const double between_us = 2 * 3 * (5 + bytes / 16 / 1e3);
  EXPECT_NEAR(us(time, Kind::all_reduce, 16'000'000), inside_us + between_us, 1e-2);
}

// What is said of a few ranks that stand for all is said of all, to the picosecond: every algorithm of the catalogue
// with its options, where messages take ports in turn.
TEST(PlanTime, RanksThatStandForAllTakeAsLongAsAll) {
  int folded = 0;
  for (const double oversubscription : {1.0, 2.0}) {
    const Machine machine = two_levels(oversubscription);
    for (const auto& choice : algorithms::every_choice()) {
      for (const int ranks : {8, 12, 16, 24}) {
        if (choice.algorithm->kind == Kind::all_to_all_v || algorithms::refusal(choice, ranks, 0)) continue;
        const plan::Plan plan = algorithms::make_plan(choice, ranks, 0);
        const PlanTime few(plan, machine);
        if (few.ranks_played() == ranks) continue;
        ++folded;
        const PlanTime all(plan, machine, ranks);
        for (const std::int64_t bytes : {64, 48'000, 9'600'000}) {
          EXPECT_EQ(few.play_ps(bytes_of(choice.algorithm->kind, bytes)),
                    all.play_ps(bytes_of(choice.algorithm->kind, bytes)))
              << choice.label() << " " << ranks << " ranks, " << bytes << " bytes, of " << few.ranks_played();
        }
      }
    }
  }
  EXPECT_GE(folded, 100);
}

TEST(PlanTime, PlansThatDoNotTurnArePlayedWhole) {
  EXPECT_EQ(rotation_period(plan_of(Kind::all_reduce, "double_tree", 16), two_levels()), 16);
  EXPECT_EQ(rotation_period(plan_of(Kind::broadcast, "binomial", 16), two_levels()), 16);
  EXPECT_EQ(rotation_period(plan_of(Kind::all_reduce, "ring", 16), two_levels()), 4);
  EXPECT_EQ(rotation_period(plan_of(Kind::all_reduce, "ring", 14), two_levels()), 14);  // 14 are not whole switches
}

// Four ranks of a switch send to another switch at once, over uplinks that carry what two of them could send.
TEST(PlanTime, UplinksAreShared) {
  const plan::Plan plan = plan_of(Kind::all_reduce, "hierarchical:group=4", 8);
  const std::int64_t bytes = 8'000'000;
  const double wide_us = us(PlanTime(plan, two_levels()), Kind::all_reduce, bytes);
  const double narrow_us = us(PlanTime(plan, two_levels(2)), Kind::all_reduce, bytes);
  EXPECT_NEAR(narrow_us - wide_us, 2 * 1e6 / 1e3, 1e-1);  // two steps of 1 MB of each rank take twice as long
}

TEST(PlanTime, MachinesHaveSoManyDevices) {
  Machine machine = two_levels();
  machine.levels.back().ranks = 8;
  EXPECT_THROW(PlanTime(plan_of(Kind::all_reduce, "ring", 16), machine), core::Error);
}

}  // namespace
}  // namespace lockstep::simulator
