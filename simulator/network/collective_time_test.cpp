// Collectives by formula and message by message agree on links that meet the formulas' assumptions; and plans that are
// played take the times that follow from the links.

#include "simulator/network/collective_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/network/topology.h"
#include "testing/collectives/every_choice.h"

namespace lockstep::simulator {
namespace {

using collectives::Kind;
using schedules::Comm;
using schedules::GroupKind;
using schedules::Lane;
using schedules::Op;
using schedules::RankWriter;
using schedules::Step;

constexpr double kLatencyUs = 3;
constexpr double kGbps = 2;

Machine one_level() {
  Machine machine;
  machine.levels.push_back({.name = "switch", .ranks = 64, .gbps = kGbps, .latency_us = kLatencyUs});
  return machine;
}

// Nodes of 8 with 100 GB/s inside and 10 GB/s per device outside.
Machine two_levels() {
  Machine machine;
  machine.levels.push_back({.name = "node", .ranks = 8, .gbps = 100, .latency_us = 1});
  machine.levels.push_back({.name = "cluster", .ranks = 1024, .gbps = 10, .latency_us = 5});
  return machine;
}

Step one_collective(Comm comm, std::int32_t ranks, std::int64_t bytes) {
  Step step{.name = "collective", .groups = {{GroupKind::data, {}}}};
  for (std::int32_t r = 0; r < ranks; ++r) {
    step.groups[0].ranks.push_back(r);
    RankWriter rank;
    rank.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = comm, .peer = 0, .amount = bytes});
    step.of_rank.push_back(rank.take());
  }
  return step;
}

double messages_us(Comm comm, std::int32_t ranks, std::int64_t bytes) {
  Step step = one_collective(comm, ranks, bytes);
  expand_collectives(step, ring_plan);
  const OneSwitch network(ranks, static_cast<std::int64_t>(kLatencyUs * 1e6), {.ps_per_byte = 1e3 / kGbps});
  const auto none = [](const schedules::Group&, const schedules::Task&) { return std::int64_t{0}; };
  return static_cast<double>(simulate(step, network, none).makespan_ps) / 1e6;
}

TEST(CollectiveTime, FormulasAgreeWithMessagesOnIdealLinks) {
  for (const Comm comm : {Comm::all_reduce, Comm::all_gather, Comm::reduce_scatter, Comm::all_to_all, Comm::shift}) {
    for (const std::int32_t ranks : {2, 3, 4, 5, 8, 16, 24}) {
      const std::int64_t bytes = std::int64_t{ranks} * 1'000'000;  // so many that a ring is faster than a tree
      const std::int64_t members[] = {ranks};
      const bool exchanges = comm == Comm::all_to_all || comm == Comm::shift;
      const auto algorithm = exchanges ? CollectiveAlgorithm::exchange : CollectiveAlgorithm::ring;
      const auto formula = best_collective(one_level(), comm, static_cast<double>(bytes), members);
      EXPECT_EQ(formula.algorithm, algorithm);
      EXPECT_NEAR(formula.time_us(), messages_us(comm, ranks, bytes), 1e-5 * formula.time_us())
          << name_of(comm) << " of " << ranks;
    }
  }
}

// With many pieces all links of a chain are busy, as in a ring.
TEST(CollectiveTime, ABroadcastAndAReductionAreAsLongAsTheirChains) {
  constexpr std::int64_t kBytes = 100'000'000;
  for (const Comm comm : {Comm::broadcast, Comm::reduce}) {
    for (const std::int32_t ranks : {2, 3, 8}) {
      Step step = one_collective(comm, ranks, kBytes);
      expand_collectives(step, [](Comm of, int members) {
        return algorithms::make_plan(algorithms::parse_choice(kind_of(of), "chain:chunks=1000"), members, 0);
      });
      const OneSwitch network(ranks, static_cast<std::int64_t>(kLatencyUs * 1e6), {.ps_per_byte = 1e3 / kGbps});
      const auto none = [](const schedules::Group&, const schedules::Task&) { return std::int64_t{0}; };
      const double messages = static_cast<double>(simulate(step, network, none).makespan_ps) / 1e6;
      const std::int64_t members[] = {ranks};
      const double formula = best_collective(one_level(), comm, kBytes, members).time_us();
      EXPECT_NEAR(formula / messages, 1, 0.01) << name_of(comm) << " of " << ranks;
      EXPECT_NEAR(formula, kBytes / (kGbps * 1e3), 0.01 * formula);
    }
  }
}

// A shift is a ring of messages: each port carries one, for any number of ranks.
TEST(CollectiveTime, AShiftIsOneMessageOverTheSlowestLinkThatNeighboursCross) {
  const std::int64_t inside[] = {8};
  EXPECT_NEAR(best_collective(two_levels(), Comm::shift, 16e6, inside).time_us(), 1 + 16e6 / 100e3, 1e-9);
  const std::int64_t across[] = {8, 16};
  EXPECT_NEAR(best_collective(two_levels(), Comm::shift, 16e6, across).time_us(), 5 + 16e6 / 10e3, 1e-9);
  const std::int64_t far[] = {1, 16};
  EXPECT_NEAR(best_collective(two_levels(), Comm::shift, 16e6, far).time_us(), 5 + 16e6 / 10e3, 1e-9);
}

TEST(CollectiveTime, ARingAcrossSwitchesUsesEveryPortThatLeavesThem) {
  // 16 ranks of two nodes: 8 ports of 10 GB/s leave a node, less than the 100 GB/s inside.
  const std::int64_t whole[] = {8, 16};
  const auto all = best_collective(two_levels(), Comm::all_gather, 16e6, whole);
  EXPECT_NEAR(all.transfer_us, 15e6 / 80e3, 1e-9);
  EXPECT_NEAR(all.latency_us, 14 * 1 + 1 * 5, 1e-9);  // 15 steps, of which 1 crosses nodes
  // One rank of each of 16 nodes: one port.
  const std::int64_t spread[] = {1, 16};
  const auto far = best_collective(two_levels(), Comm::all_gather, 16e6, spread);
  EXPECT_NEAR(far.transfer_us, 15e6 / 10e3, 1e-9);
  EXPECT_NEAR(far.latency_us, 15 * 5, 1e-9);
}

TEST(CollectiveTime, SmallAllReducesTakeTheTree) {
  const std::int64_t members[] = {8, 1024};
  EXPECT_EQ(best_collective(two_levels(), Comm::all_reduce, 8, members).algorithm, CollectiveAlgorithm::tree);
  EXPECT_EQ(best_collective(two_levels(), Comm::all_reduce, 1e12, members).algorithm, CollectiveAlgorithm::ring);
}

TEST(CollectiveTime, OneRankTakesNoTime) {
  const std::int64_t alone[] = {1, 1};
  EXPECT_EQ(best_collective(two_levels(), Comm::all_reduce, 1e9, alone).time_us(), 0);
}

// Ranks issue a gather and a reduction in different orders: lanes separate them.
TEST(Expand, AGroupMeetsLaneByLane) {
  Step step{.name = "lanes", .groups = {{GroupKind::data, {0, 1}}}};
  for (const bool gather_first : {true, false}) {
    RankWriter rank;
    for (const bool gather : {gather_first, !gather_first}) {
      rank.add({.op = gather ? Op::unshard : Op::reduce_grad,
                .lane = gather ? Lane::gather : Lane::reduce,
                .comm = gather ? Comm::all_gather : Comm::reduce_scatter,
                .peer = 0,
                .amount = gather ? 2000 : 8000});
    }
    step.of_rank.push_back(rank.take());
  }
  expand_collectives(step, ring_plan);
  const auto none = [](const schedules::Group&, const schedules::Task&) { return std::int64_t{0}; };
  const Simulation run = simulate(step, OneSwitch(2, 0, {.ps_per_byte = 1}), none);
  EXPECT_EQ(run.makespan_ps, 1000 + 4000);  // half of each, sequentially through a port
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const schedules::Task& task = step.of_rank[r].tasks[i];
      if (!schedules::is_send(task.op)) continue;
      EXPECT_EQ(task.amount, task.lane == Lane::gather ? 1000 : 4000);
    }
  }
}

TEST(Expand, PlansOfSeveralLanesAreRefused) {
  Step step = one_collective(Comm::all_reduce, 4, 4096);
  const auto two_lanes = [](Comm, int ranks) {
    plan::PlanBuilder builder(collectives::Kind::all_reduce, ranks, 0, 1);
    builder.copy(0, plan::output(0), plan::input(0), 1);
    return builder.finish("two lanes");
  };
  EXPECT_THROW(expand_collectives(step, two_lanes), core::Error);
}

// 10 GB/s and 1 us inside switches of 4, 1 GB/s and 5 us between them; no other cost.
Machine nodes_of_four(double oversubscription = 1) {
  Machine machine;
  machine.name = "test";
  machine.device.memory_gbps = 1e12;
  machine.device.memory = {{1, 1}};
  machine.levels = {
      {.name = "node", .ranks = 4, .gbps = 10, .latency_us = 1},
      {.name = "network", .ranks = 1024, .gbps = 1, .latency_us = 5, .oversubscription = oversubscription}};
  return machine;
}

Machine one_network() {
  Machine machine = nodes_of_four();
  machine.levels.erase(machine.levels.begin());
  return machine;
}

// Links of 10 GB/s and 1 us, plus 0.5 us for each further link.
Machine torus(std::int32_t columns, std::int32_t rows) {
  Machine machine = one_network();
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
  const Machine machine = one_network();
  const PlanTime time(plan_of(Kind::all_reduce, "ring", 8), machine);
  EXPECT_EQ(time.ranks_played(), 1);
  EXPECT_NEAR(us(time, Kind::all_reduce, 8000), 2 * 7 * (5 + 1000 / 1e3), 1e-3);
}

TEST(PlanTime, RecursiveDoublingSendsTheWholeVectorInEachStep) {
  const Machine machine = one_network();
  const PlanTime time(plan_of(Kind::all_reduce, "recursive_doubling", 8), machine);
  EXPECT_NEAR(us(time, Kind::all_reduce, 8000), 3 * (5 + 8.0), 1e-3);
}

TEST(PlanTime, OneShotIsBoundByThePort) {
  const Machine machine = one_network();
  const PlanTime time(plan_of(Kind::all_reduce, "one_shot", 4), machine);
  EXPECT_NEAR(us(time, Kind::all_reduce, 8000), 5 + 3 * 8.0, 1e-3);
}

TEST(PlanTime, HierarchicalKeepsTheSlowLevelsShareSmall) {
  const Machine machine = nodes_of_four();
  const PlanTime time(plan_of(Kind::all_reduce, "hierarchical:group=4", 16), machine);
  EXPECT_EQ(time.ranks_played(), 4);
  const double bytes = 16'000'000;
  const double inside_us = 2 * 3 * (1 + bytes / 4 / 10e3);
  const double between_us = 2 * 3 * (5 + bytes / 16 / 1e3);
  EXPECT_NEAR(us(time, Kind::all_reduce, 16'000'000), inside_us + between_us, 1e-2);
}

// Representative ranks (rotation_period) give the same time as all ranks, to the picosecond: for every algorithm of the
// catalogue with its options, if messages take ports one at a time.
TEST(PlanTime, RanksThatStandForAllTakeAsLongAsAll) {
  int folded = 0;
  for (const Machine& machine : {nodes_of_four(), nodes_of_four(2), torus(4, 4), torus(4, 3)}) {
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
  EXPECT_EQ(rotation_period(plan_of(Kind::all_reduce, "double_tree", 16), nodes_of_four()), 16);
  EXPECT_EQ(rotation_period(plan_of(Kind::broadcast, "binomial", 16), nodes_of_four()), 16);
  EXPECT_EQ(rotation_period(plan_of(Kind::all_reduce, "ring", 16), nodes_of_four()), 4);
  EXPECT_EQ(rotation_period(plan_of(Kind::all_reduce, "ring", 14), nodes_of_four()), 14);  // 14 are not whole switches
}

// Four ranks of a switch send to another switch at once, over uplinks with the bandwidth of two of them.
TEST(PlanTime, UplinksAreShared) {
  const plan::Plan plan = plan_of(Kind::all_reduce, "hierarchical:group=4", 8);
  const std::int64_t bytes = 8'000'000;
  const double wide_us = us(PlanTime(plan, nodes_of_four()), Kind::all_reduce, bytes);
  const double narrow_us = us(PlanTime(plan, nodes_of_four(2)), Kind::all_reduce, bytes);
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
  Machine machine = nodes_of_four();
  machine.levels.back().ranks = 8;
  EXPECT_THROW(PlanTime(plan_of(Kind::all_reduce, "ring", 16), machine), core::Error);
}

}  // namespace
}  // namespace lockstep::simulator
