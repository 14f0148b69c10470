#include "simulator/network/nccl_tuner.h"

#include <algorithm>
#include <cmath>

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using Algorithm = CollectiveAlgorithm;

std::size_t index_of(Protocol protocol) {
  return static_cast<std::size_t>(protocol);
}

double most_of(const nccl::OfGeneration& table, const Nccl& nccl, const NcclCall& call) {
  const std::size_t nodes = std::min<std::size_t>(static_cast<std::size_t>(call.nodes), 3) - 1;
  return table[static_cast<std::size_t>(nccl.generation)][nodes];
}

double ring_latency_us(const Nccl& nccl, const NcclCall& call, Protocol protocol) {
  const nccl::Hops& inside = hops_in_node(nccl);
  const std::size_t p = index_of(protocol);
  double inside_us = inside.ring[p];
  if (call.nodes > 1) {
    inside_us = std::max(inside_us, nccl::kNetworkPostUs * (protocol == Protocol::simple ? 3 : 1));
  }
  const double between = call.rounds() * (call.nodes - 1);
  return nccl::kRingStartUs[p] + (call.ring_steps() - between) * inside_us + between * nccl::kNetworkUs.ring[p];
}

// Steps of a chain of the node's ranks and a tree of the nodes, up and down.
double chain_and_tree_latency_us(const Nccl& nccl, const NcclCall& call, Protocol protocol) {
  const nccl::Hops& inside = hops_in_node(nccl);
  const std::size_t p = index_of(protocol);
  return nccl::kTreeStartUs[p] +
         2 * ((call.ranks_per_node() - 1) * inside.tree[p] + hops_between_nodes(call) * nccl::kNetworkUs.tree[p]);
}

// GB/s that NCCL's search assumes for all channels of a ring: inside a node, the links among the ranks; across nodes,
// 96 % (24 of 25 GB/s) of the ports of one node's ranks.
struct Searched {
  double gbps = 0;
  double channels = 1;
};
Searched searched(const Machine& machine, const NcclCall& call, MembersOfLevels members) {
  const Nccl& nccl = *machine.nccl;
  const double channels = nccl.channels * nccl.share_of_links(members.front());
  if (call.nodes == 1) return {channels * nccl.channel_gbps, channels};
  constexpr double kOfAPort = 0.96;
  constexpr double kChannelGbps = 24;
  const double ports = call.ranks_per_node() * machine.levels[1].gbps * kOfAPort;
  const double inside = call.ranks_per_node() > 1 ? channels * nccl.channel_gbps : ports;
  return {std::min(inside, ports), std::ceil(std::min(inside, ports) / kChannelGbps)};
}

double ring_gbps(const Nccl& nccl, const NcclCall& call, const Searched& found, Protocol protocol) {
  if (protocol == Protocol::ll) return std::min(found.gbps * nccl::kLl, most_ll_gbps(nccl, call));
  if (protocol == Protocol::simple) return found.gbps;
  const double share = call.ranks_per_node() < 2 ? nccl::kLl128OneRankANode : nccl::kLl128;
  return std::min(found.gbps * share, found.channels * most_of(nccl::kMostRingLl128, nccl, call));
}

double tree_gbps(const Nccl& nccl, const NcclCall& call, const Searched& found, Protocol protocol) {
  const double simple = std::min(found.gbps * nccl::kTree, found.channels * most_of(nccl::kMostTree, nccl, call));
  if (protocol == Protocol::ll) return std::min(simple * nccl::kTreeLl, most_ll_gbps(nccl, call));
  if (protocol == Protocol::simple) return simple;
  const double share = call.nodes == 1 ? nccl::kTreeLl128OneNode : nccl::kTreeLl128;
  return std::min(simple * share, found.channels * most_of(nccl::kMostTreeLl128, nccl, call));
}

// One channel per rank of the node; one channel waits for the others.
double nvls_gbps(const Machine& machine, const NcclCall& call, bool with_tree) {
  const Nccl& nccl = *machine.nccl;
  const double heads = call.ranks_per_node();
  const double inside = nccl.nvls_search_gbps * nccl::kNvlsEfficiency[static_cast<std::size_t>(nccl.generation)] *
                        (heads - 1) / heads * (call.comm == Comm::all_reduce ? 2 : (heads - 1) / heads);
  if (!with_tree) return inside;
  const double ports = heads * machine.levels[1].gbps * (call.nodes <= 2 ? 2 : 1);
  return std::min({inside, ports, most_nvls_tree_gbps(nccl, call)});
}

// Payload bytes per microsecond.
double payload_rate(const Machine& machine, const NcclCall& call, MembersOfLevels members, const NcclWay& way) {
  constexpr double kBytesPerUs = 1e3;
  const Nccl& nccl = *machine.nccl;
  const Searched found = searched(machine, call, members);
  const double of_a_ring = call.ranks / call.ring_steps();
  switch (way.algorithm) {
    case Algorithm::tree:
      return tree_gbps(nccl, call, found, way.protocol) / 2 * tree_share(call.bytes, way.protocol) * kBytesPerUs;
    case Algorithm::nvls:
    case Algorithm::nvls_tree:
      return nvls_gbps(machine, call, way.algorithm == Algorithm::nvls_tree) * of_a_ring * kBytesPerUs;
    case Algorithm::pat:
      return found.gbps * nccl::kPat * of_a_ring * kBytesPerUs;
    default:
      return ring_gbps(nccl, call, found, way.protocol) * of_a_ring * kBytesPerUs;
  }
}

double plateau(const Machine& machine, const NcclCall& call, MembersOfLevels members, const NcclWay& way) {
  if (way.algorithm != Algorithm::ring || way.protocol != Protocol::simple) return 1;
  if (call.nodes == 1 || call.comm != Comm::all_reduce) return 1;
  const double part = call.bytes / (searched(machine, call, members).channels * call.ranks);
  return part < nccl::kPlateauBytes ? 1 : nccl::kPlateau[static_cast<std::size_t>(machine.nccl->generation)];
}

}  // namespace

NcclCall nccl_call(Comm comm, double bytes, MembersOfLevels members) {
  const auto ranks = static_cast<double>(members.back());
  return {comm, bytes, ranks, std::ceil(ranks / static_cast<double>(members.front()))};
}

std::vector<NcclWay> nccl_ways(const Nccl& nccl, const NcclCall& call) {
  std::vector<NcclWay> ways;
  const auto add = [&](Algorithm algorithm) {
    ways.push_back({algorithm, Protocol::ll});
    if (nccl.inside == NodeLink::nvlink) ways.push_back({algorithm, Protocol::ll128});
    ways.push_back({algorithm, Protocol::simple});
  };
  add(Algorithm::ring);
  if (call.comm == Comm::all_reduce) add(Algorithm::tree);
  const bool has_nvls = nccl.nvls > 0 && call.ranks_per_node() > 2;
  if (has_nvls && call.nodes == 1) ways.push_back({Algorithm::nvls});
  if (has_nvls && call.nodes > 1 && call.comm == Comm::all_reduce) ways.push_back({Algorithm::nvls_tree});
  if (call.comm != Comm::all_reduce && call.nodes > 1 && call.ranks_per_node() == 1) ways.push_back({Algorithm::pat});
  return ways;
}

double nccl_latency_us(const Nccl& nccl, const NcclCall& call, const NcclWay& way) {
  const double between = hops_between_nodes(call);
  switch (way.algorithm) {
    case Algorithm::tree:
      return chain_and_tree_latency_us(nccl, call, way.protocol);
    case Algorithm::nvls:
      return nccl::kNvlinkUs.nvls;
    case Algorithm::nvls_tree:
      return nccl::kNvlinkUs.nvls_tree + 2 * between * nccl::kNetworkUs.nvls_tree;
    case Algorithm::pat:
      return nccl::kPatStartUs + between * nccl::kNetworkUs.pat * nccl::kPatHops + call.ranks * nccl::kPatRankUs;
    default:
      return ring_latency_us(nccl, call, way.protocol);
  }
}

const nccl::Hops& hops_in_node(const Nccl& nccl) {
  return nccl.inside == NodeLink::nvlink ? nccl::kNvlinkUs : nccl::kPcieUs;
}

double hops_between_nodes(const NcclCall& call) {
  return std::floor(std::log2(call.nodes));
}

double most_nvls_tree_gbps(const Nccl& nccl, const NcclCall& call) {
  return call.ranks_per_node() * most_of(nccl::kMostNvlsTree, nccl, call);
}

double tree_share(double bytes, Protocol protocol) {
  const auto& shares = nccl::kTreeOfSize[index_of(protocol)];
  const double doublings = std::floor(std::log2(std::max(bytes, 64.0) / 64));
  return shares[std::min(static_cast<std::size_t>(doublings), shares.size() - 1)];
}

double most_ll_gbps(const Nccl& nccl, const NcclCall& call) {
  return most_of(nccl::kMostLl, nccl, call);
}

double nccl_tuner_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, const NcclWay& way) {
  return nccl_latency_us(*machine.nccl, call, way) * plateau(machine, call, members, way) +
         call.bytes / payload_rate(machine, call, members, way);
}

NcclWay nccl_choice(const Machine& machine, const NcclCall& call, MembersOfLevels members) {
  const std::vector<NcclWay> ways = nccl_ways(*machine.nccl, call);
  return *std::min_element(ways.begin(), ways.end(), [&](const NcclWay& a, const NcclWay& b) {
    return nccl_tuner_us(machine, call, members, a) < nccl_tuner_us(machine, call, members, b);
  });
}

}  // namespace lockstep::simulator
