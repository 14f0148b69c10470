#include "simulator/network/topology.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::simulator {
namespace {

// Nodes of 4; racks of 8 that their spine connects with half of what their ports carry.
Machine racks() {
  Machine machine;
  machine.levels.push_back({.name = "node", .ranks = 4, .gbps = 100, .latency_us = 1});
  machine.levels.push_back({.name = "rack", .ranks = 8, .gbps = 10, .latency_us = 5});
  machine.levels.push_back({.name = "spine", .ranks = 64, .gbps = 10, .latency_us = 9, .oversubscription = 2});
  return machine;
}

std::set<std::int32_t> links_of(const Path& path) {
  return {path.links.begin(), path.links.begin() + path.num_links};
}

TEST(MachineNetwork, AMessageTakesTheLowestLevelThatJoinsBothEnds) {
  std::vector<std::int64_t> place(64);
  for (std::size_t r = 0; r < place.size(); ++r) place[r] = static_cast<std::int64_t>(r);
  const MachineNetwork network(racks(), place);
  EXPECT_EQ(network.path(0, 3).latency_ps, 1000000);
  EXPECT_EQ(network.path(0, 4).latency_ps, 5000000);
  EXPECT_EQ(network.path(0, 8).latency_ps, 9000000);
  EXPECT_EQ(network.path(0, 3).num_links, 2);
  EXPECT_EQ(network.path(0, 8).num_links, 4);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(network.path(0, 3).links[0])].ps_per_byte, 10);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(network.path(0, 4).links[0])].ps_per_byte, 100);
}

TEST(MachineNetwork, UplinksAreSharedByARackAndPortsByNobody) {
  std::vector<std::int64_t> place(64);
  for (std::size_t r = 0; r < place.size(); ++r) place[r] = static_cast<std::int64_t>(r);
  const MachineNetwork network(racks(), place);
  const Path a = network.path(0, 8);
  const Path b = network.path(1, 9);
  EXPECT_NE(a.links[0], b.links[0]);
  EXPECT_EQ(a.links[1], b.links[1]);
  EXPECT_EQ(a.links[2], b.links[2]);
  // 8 ports of 10 GB/s, half of that: 40 GB/s.
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(a.links[1])].ps_per_byte, 25);
  EXPECT_EQ(links_of(network.path(8, 0)).count(a.links[1]), 0U);  // the way down is not the way up
}

TEST(MachineNetwork, AStepWithOneRankOfEightHasItsPartOfAnUplink) {
  const MachineNetwork network(racks(), {0, 8, 16});
  const Path path = network.path(0, 1);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(path.links[1])].ps_per_byte, 200);
}

}  // namespace
}  // namespace lockstep::simulator
