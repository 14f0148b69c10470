// Concurrent collectives of different groups, as plans, share ports and uplinks; formulas ignore that. Rings of two
// ranks send half of their payload twice.
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/one_switch.h"
#include "simulator/network/expand.h"
#include "simulator/network/topology.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Lane;
using schedules::Op;

constexpr std::int64_t kBytes = 2'000'000;

struct Reduction {
  std::vector<std::int32_t> ranks;
  Lane lane = Lane::reduce;
};

// Four ranks issue these all-reduces at the same time.
double all_reduces_us(const Topology& network, std::initializer_list<Reduction> reductions) {
  schedules::Step step{.name = "contention", .of_rank = {}, .groups = {}};
  std::vector<schedules::RankWriter> ranks(4);
  for (const Reduction& reduction : reductions) {
    const auto group = static_cast<std::int32_t>(step.groups.size());
    step.groups.push_back({GroupKind::data, reduction.ranks});
    for (const std::int32_t rank : reduction.ranks) {
      ranks[static_cast<std::size_t>(rank)].add(
          {.op = Op::reduce_grad, .lane = reduction.lane, .comm = Comm::all_reduce, .peer = group, .amount = kBytes});
    }
  }
  for (schedules::RankWriter& rank : ranks) step.of_rank.push_back(rank.take());
  expand_collectives(step, ring_plan);
  const auto none = [](const schedules::Group&, const schedules::Task&) { return std::int64_t{0}; };
  return static_cast<double>(simulate(step, network, none).makespan_ps) / 1e6;
}

// Nodes of 2 with 10 GB/s per port; `oversubscription` 2: both ports of a node share 10 GB/s upwards and 10 GB/s
// downwards.
MachineNetwork two_nodes(double oversubscription) {
  Machine machine;
  machine.levels.push_back({.name = "node", .ranks = 2, .gbps = 100, .latency_us = 1});
  machine.levels.push_back(
      {.name = "spine", .ranks = 4, .gbps = 10, .latency_us = 5, .oversubscription = oversubscription});
  return {machine, {0, 1, 2, 3}};
}

TEST(Contention, TwoGroupsShareAnOversubscribedUplink) {
  const Reduction one{{0, 2}};
  const Reduction other{{1, 3}};
  EXPECT_NEAR(all_reduces_us(two_nodes(2), {one}), 2 * (5 + 1e6 / 10e3), 1e-3);
  EXPECT_NEAR(all_reduces_us(two_nodes(2), {one, other}), 2 * (5 + 1e6 / 5e3), 1e-3);
  EXPECT_NEAR(all_reduces_us(two_nodes(1), {one, other}), 2 * (5 + 1e6 / 10e3), 1e-3);  // enough for both
}

TEST(Contention, GroupsOfDifferentNodesShareNothing) {
  EXPECT_NEAR(all_reduces_us(two_nodes(2), {{{0, 1}}, {{2, 3}}}), 2 * (1 + 1e6 / 100e3), 1e-3);
}

// Each rank reduces with one peer for tensor parallelism and with another for data parallelism: its port sends four
// messages of 100 us. With fair sharing, both groups take their steps together. One at a time in order of arrival, rank
// 0's message to 2 waits for its own port until 100 us and holds the port of 2 for that time, so that 3's to 2 comes
// third: six messages after each other.
TEST(Contention, TensorAndDataParallelTrafficShareAPort) {
  const OneSwitch in_turn(4, 5'000'000, {.ps_per_byte = 100});
  const OneSwitch in_equal_parts(4, 5'000'000, {.ps_per_byte = 100, .fair = true});
  const Reduction tensor[] = {{{0, 1}, Lane::tensor}, {{2, 3}, Lane::tensor}};
  const Reduction data[] = {{{0, 2}}, {{1, 3}}};
  EXPECT_NEAR(all_reduces_us(in_turn, {data[0], data[1]}), 2 * (5 + 100), 1e-3);
  EXPECT_NEAR(all_reduces_us(in_turn, {tensor[0], tensor[1], data[0], data[1]}), 6 * 100 + 5, 1e-3);
  EXPECT_NEAR(all_reduces_us(in_equal_parts, {tensor[0], tensor[1], data[0], data[1]}), 2 * (5 + 200), 1e-3);
}

}  // namespace
}  // namespace lockstep::simulator
