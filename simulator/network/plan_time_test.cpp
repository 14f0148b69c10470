#include "simulator/network/plan_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/every_choice.h"
#include "core/error.h"
#include "simulator/network/collective_time.h"

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

// Links of 10 GB/s and 1 us, plus 0.5 us for each further link.
Machine torus(std::int32_t columns, std::int32_t rows) {
  Machine machine = one_level();
  machine.levels = {
      {.name = "torus", .ranks = columns * rows, .gbps = 10, .latency_us = 1, .torus = Torus{columns, rows, 0.5}}};
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

// Representative ranks (plan_time.h) give the same time as all ranks, to the picosecond: for every algorithm of the
// catalogue with its options, if messages take ports one at a time.
TEST(PlanTime, RanksThatStandForAllTakeAsLongAsAll) {
  int folded = 0;
  for (const Machine& machine : {two_levels(), two_levels(2), torus(4, 4), torus(4, 3)}) {
    for (const auto& choice : algorithms::every_choice()) {
      for (const int ranks : {8, 12, 16, 24}) {
        if (choice.algorithm->kind == Kind::all_to_all_v || algorithms::refusal(choice, ranks, 0)) continue;
        if (ranks > machine.levels.back().ranks) continue;
        const plan::Plan plan = algorithms::make_plan(choice, ranks, 0);
        const PlanTime few(plan, machine);
        if (few.ranks_played() == ranks) continue;
        ++folded;
        const PlanTime all(plan, machine, ranks);
        for (const std::int64_t bytes : {64, 48'000, 9'600'000}) {
          EXPECT_EQ(few.play_ps(bytes_of(choice.algorithm->kind, bytes)),
                    all.play_ps(bytes_of(choice.algorithm->kind, bytes)))
              << machine.levels.front().name << ": " << choice.label() << " " << ranks << " ranks, " << bytes
              << " bytes, of " << few.ranks_played();
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

// Four ranks of a switch send to another switch at once, over uplinks with the bandwidth of two of them.
TEST(PlanTime, UplinksAreShared) {
  const plan::Plan plan = plan_of(Kind::all_reduce, "hierarchical:group=4", 8);
  const std::int64_t bytes = 8'000'000;
  const double wide_us = us(PlanTime(plan, two_levels()), Kind::all_reduce, bytes);
  const double narrow_us = us(PlanTime(plan, two_levels(2)), Kind::all_reduce, bytes);
  EXPECT_NEAR(narrow_us - wide_us, 2 * 1e6 / 1e3, 1e-1);  // two steps of 1 MB of each rank take twice as long
}

// Rings along rows, then along columns on each rank's share of its row: 2 (X - 1 + Y - 1) steps, all between
// neighbours. A ring over all has 2 (XY - 1), of which those that end a row pass two links.
TEST(PlanTime, TwoDimensionsBeatARingOnATorus) {
  const Machine machine = torus(8, 4);
  const PlanTime rows_and_columns(plan_of(Kind::all_reduce, "hierarchical:group=8", 32), machine);
  EXPECT_EQ(rows_and_columns.ranks_played(), 8);
  const double bytes = 3'200'000;
  const double transfer_us = 2 * bytes * 31 / 32 / 10e3;
  EXPECT_NEAR(us(rows_and_columns, Kind::all_reduce, 3'200'000), 2 * (7 + 3) * 1 + transfer_us, 1e-2);
  const PlanTime around(plan_of(Kind::all_reduce, "ring", 32), machine);
  EXPECT_NEAR(us(around, Kind::all_reduce, 3'200'000), 2 * 31 * 1 + 8 * 0.5 + transfer_us, 0.5);
  EXPECT_GT(us(around, Kind::all_reduce, 3200), 3 * us(rows_and_columns, Kind::all_reduce, 3200));
}

// An all-to-all takes the time of the busiest link.
TEST(PlanTime, AnAllToAllIsBoundByTheBusiestLinkOfATorus) {
  for (const auto& [columns, rows] : {std::pair{4, 4}, std::pair{8, 2}, std::pair{5, 3}}) {
    const Machine machine = torus(columns, rows);
    const int ranks = columns * rows;
    const std::int64_t block = 1'000'000;  // bytes to each rank
    const double bound_us = torus_load(*machine.levels[0].torus, ranks) * static_cast<double>(ranks * block) / 10e3;
    const PlanTime time(plan_of(Kind::all_to_all, "direct", ranks), machine);
    const double played_us = us(time, Kind::all_to_all, block);
    EXPECT_GE(played_us, bound_us) << columns;
    EXPECT_LE(played_us, 4 * bound_us) << columns;
  }
}

TEST(PlanTime, MachinesHaveSoManyDevices) {
  Machine machine = two_levels();
  machine.levels.back().ranks = 8;
  EXPECT_THROW(PlanTime(plan_of(Kind::all_reduce, "ring", 16), machine), core::Error);
}

}  // namespace
}  // namespace lockstep::simulator
