#include "simulator/network/topology.h"

#include <initializer_list>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"

namespace lockstep::simulator {
namespace {

// Nodes of 4; racks of 8, whose spine has half of their ports' bandwidth.
Machine racks() {
  Machine machine;
  machine.levels.push_back({.name = "node", .ranks = 4, .gbps = 100, .latency_us = 1});
  machine.levels.push_back({.name = "rack", .ranks = 8, .gbps = 10, .latency_us = 5});
  machine.levels.push_back({.name = "spine", .ranks = 64, .gbps = 10, .latency_us = 9, .oversubscription = 2});
  return machine;
}

std::set<std::int32_t> links_of(const Path& path) {
  return {path.links().begin(), path.links().end()};
}

TEST(MachineNetwork, AMessageTakesTheLowestLevelThatJoinsBothEnds) {
  std::vector<std::int64_t> place(64);
  for (std::size_t r = 0; r < place.size(); ++r) place[r] = static_cast<std::int64_t>(r);
  const MachineNetwork network(racks(), place);
  EXPECT_EQ(network.path(0, 3).latency_ps, 1000000);
  EXPECT_EQ(network.path(0, 4).latency_ps, 5000000);
  EXPECT_EQ(network.path(0, 8).latency_ps, 9000000);
  EXPECT_EQ(network.path(0, 3).links().size(), 2U);
  EXPECT_EQ(network.path(0, 8).links().size(), 4U);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(network.path(0, 3).links()[0])].ps_per_byte, 10);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(network.path(0, 4).links()[0])].ps_per_byte, 100);
}

TEST(MachineNetwork, UplinksAreSharedByARackAndPortsByNobody) {
  std::vector<std::int64_t> place(64);
  for (std::size_t r = 0; r < place.size(); ++r) place[r] = static_cast<std::int64_t>(r);
  const MachineNetwork network(racks(), place);
  const Path a = network.path(0, 8);
  const Path b = network.path(1, 9);
  EXPECT_NE(a.links()[0], b.links()[0]);
  EXPECT_EQ(a.links()[1], b.links()[1]);
  EXPECT_EQ(a.links()[2], b.links()[2]);
  // Half of 8 ports of 10 GB/s: 40 GB/s.
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(a.links()[1])].ps_per_byte, 25);
  EXPECT_EQ(links_of(network.path(8, 0)).count(a.links()[1]), 0U);  // the way down is not the way up
}

TEST(MachineNetwork, AStepWithOneRankOfEightHasItsPartOfAnUplink) {
  const MachineNetwork network(racks(), {0, 8, 16});
  const Path path = network.path(0, 1);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(path.links()[1])].ps_per_byte, 200);
}

// 4 columns, 3 rows; a second one behind a network.
Machine toruses() {
  Machine machine;
  machine.levels.push_back({.name = "torus", .ranks = 12, .gbps = 10, .latency_us = 2, .torus = Torus{4, 3, 0.5}});
  machine.levels.push_back({.name = "network", .ranks = 24, .gbps = 1, .latency_us = 9});
  return machine;
}

MachineNetwork whole_network(const Machine& machine) {
  std::vector<std::int64_t> place(static_cast<std::size_t>(machine.levels.back().ranks));
  for (std::size_t r = 0; r < place.size(); ++r) place[r] = static_cast<std::int64_t>(r);
  return {machine, place};
}

// Link of a device of the first torus: to the next and the previous column, the next and the previous row.
enum Way : std::int32_t { kRight, kLeft, kDown, kUp };
std::int32_t link_of(std::int32_t device, Way way) {
  return 4 * device + way;
}
std::vector<std::int32_t> links_in_order(const Path& path) {
  return {path.links().begin(), path.links().end()};
}

TEST(MachineNetwork, ATorusIsCrossedAlongTheRowAndThenAlongTheColumn) {
  const MachineNetwork network = whole_network(toruses());
  using Links = std::vector<std::int32_t>;
  EXPECT_EQ(links_in_order(network.path(0, 5)), (Links{link_of(0, kRight), link_of(1, kDown)}));
  EXPECT_EQ(links_in_order(network.path(5, 0)), (Links{link_of(5, kLeft), link_of(4, kUp)}));
  EXPECT_EQ(network.path(0, 1).latency_ps, 2000000);
  EXPECT_EQ(network.path(0, 5).latency_ps, 2500000);
  EXPECT_DOUBLE_EQ(network.links()[0].ps_per_byte, 100);
}

TEST(MachineNetwork, ATorusIsCrossedTheShorterWayAround) {
  const MachineNetwork network = whole_network(toruses());
  using Links = std::vector<std::int32_t>;
  EXPECT_EQ(links_in_order(network.path(0, 3)), (Links{link_of(0, kLeft)}));
  EXPECT_EQ(links_in_order(network.path(3, 0)), (Links{link_of(3, kRight)}));
  EXPECT_EQ(links_in_order(network.path(0, 2)), (Links{link_of(0, kRight), link_of(1, kRight)})) << "as long as left";
  EXPECT_EQ(links_in_order(network.path(1, 9)), (Links{link_of(1, kUp)}));
  EXPECT_EQ(links_in_order(network.path(0, 11)), (Links{link_of(0, kLeft), link_of(3, kUp)}));
}

TEST(MachineNetwork, BeyondATorusAMessageTakesPorts) {
  const MachineNetwork network = whole_network(toruses());
  EXPECT_EQ(network.path(0, 12).links().size(), 2U);
  EXPECT_EQ(network.path(0, 12).latency_ps, 9000000);
  EXPECT_EQ(network.path(12, 13).links()[0], link_of(12, kRight)) << "the second torus has links of its own";
}

// Devices without ranks forward messages.
TEST(MachineNetwork, AStepWithFewRanksOfATorusHasAllOfItsLinks) {
  const MachineNetwork network(toruses(), {0, 6});
  EXPECT_EQ(network.path(0, 1).links().size(), 3U);
  EXPECT_EQ(network.path(1, 0).links().size(), 3U);
}

// Concurrent collectives of different groups, as plans, share ports and uplinks; formulas ignore that. Rings of two
// ranks send half of their payload twice.

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
  const Reduction reduction{{0, 2}};
  const Reduction other{{1, 3}};
  EXPECT_NEAR(all_reduces_us(two_nodes(2), {reduction}), 2 * (5 + 1e6 / 10e3), 1e-3);
  EXPECT_NEAR(all_reduces_us(two_nodes(2), {reduction, other}), 2 * (5 + 1e6 / 5e3), 1e-3);
  EXPECT_NEAR(all_reduces_us(two_nodes(1), {reduction, other}), 2 * (5 + 1e6 / 10e3), 1e-3);  // enough for both
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
