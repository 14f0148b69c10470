// Collectives by formula and message by message agree on links that meet the formulas' assumptions.
#include "simulator/network/collective_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/links.h"
#include "simulator/network/expand.h"

namespace lockstep::simulator {
namespace {

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
      const std::int64_t bytes = std::int64_t{ranks} * 1000;
      const std::int64_t members[] = {ranks};
      const bool exchanges = comm == Comm::all_to_all || comm == Comm::shift;
      const auto algorithm = exchanges ? CollectiveAlgorithm::exchange : CollectiveAlgorithm::ring;
      const auto formula = predict_collective(one_level(), comm, algorithm, static_cast<double>(bytes), members);
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
  const auto all = predict_collective(two_levels(), Comm::all_gather, CollectiveAlgorithm::ring, 16e6, whole);
  EXPECT_NEAR(all.transfer_us, 15e6 / 80e3, 1e-9);
  EXPECT_NEAR(all.latency_us, 14 * 1 + 1 * 5, 1e-9);  // 15 steps, of which 1 crosses nodes
  // One rank of each of 16 nodes: one port.
  const std::int64_t spread[] = {1, 16};
  const auto far = predict_collective(two_levels(), Comm::all_gather, CollectiveAlgorithm::ring, 16e6, spread);
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
  EXPECT_EQ(run.makespan_ps, 1000 + 4000);  // half of each, one after the other through a port
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

}  // namespace
}  // namespace lockstep::simulator
