#include "simulator/network/nccl.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::simulator {
namespace {

using Algorithm = CollectiveAlgorithm;

constexpr std::size_t kNode = 0;
constexpr std::size_t kFirstNetwork = 1;

double protocol_share(const Nccl& nccl, Protocol protocol) {
  if (protocol == Protocol::ll) return nccl.ll;
  return protocol == Protocol::ll128 ? nccl.ll128 : 1;
}

double with_protocol(const Machine& machine, const NcclCall& call, double rate, Protocol protocol) {
  constexpr double kBytesPerUs = 1e3;
  const double reached = rate * protocol_share(*machine.nccl, protocol);
  return protocol == Protocol::ll ? std::min(reached, most_ll_gbps(*machine.nccl, call) * kBytesPerUs) : reached;
}

double ring_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, Protocol protocol) {
  const double part = call.bytes / call.ranks;
  const double rate = with_protocol(machine, call, ring_rate(machine, members), protocol);
  const double copy = members.front() > 1 ? machine.nccl->last_copy * part / port_rate(machine, members, kNode) : 0;
  return call.ring_steps() * part / rate + copy;
}

// Rate of the ports between nodes.
double tree_of_nodes_us(const Machine& machine, const NcclCall& call, MembersOfLevels members) {
  if (call.nodes == 1) return 0;
  return 2 * call.bytes * (call.nodes - 1) / call.nodes / ring_rate(machine, members, kFirstNetwork);
}

double tree_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, Protocol protocol) {
  const double chain_us = members.front() > 1 ? 2 * call.bytes / port_rate(machine, members, kNode) : 0;
  const double at_full_rate = std::max(chain_us, tree_of_nodes_us(machine, call, members));
  return at_full_rate / (protocol_share(*machine.nccl, protocol) * nccl::kTree * tree_share(call.bytes, protocol));
}

// Bytes that all heads and channels of NVLS move at once.
template <std::size_t N>
double loop_bytes(const NcclCall& call, double chunk_bytes, const std::array<nccl::ChunkLimit, N>& limits) {
  const double at_once = nccl::kNvlsChannels * call.ranks_per_node();
  for (const nccl::ChunkLimit& limit : limits) {
    if (call.bytes < limit.chunks * at_once * chunk_bytes) chunk_bytes = std::min(chunk_bytes, limit.bytes);
  }
  return std::min(call.bytes, at_once * chunk_bytes);
}

// Time in which the switch reads and writes a vector in a node.
double through_switch_us(const Machine& machine, const NcclCall& call, double bytes) {
  const double rate = machine.levels[kNode].gbps * machine.nccl->nvls * 1e3;
  const double sums = call.comm == schedules::Comm::all_reduce ? 1 + 1 / call.ranks_per_node() : 1;
  return bytes * sums / rate;
}

// The switch writes the last chunk after it has read it.
double nvls_us(const Machine& machine, const NcclCall& call) {
  const bool both_ways = call.comm == schedules::Comm::all_reduce;
  const double last = both_ways ? loop_bytes(call, nccl::kNvlsChunkBytes, nccl::kNvlsChunks) : 0;
  return through_switch_us(machine, call, call.bytes + last);
}

// A pipeline of reads in a node, the tree of nodes up and down, and writes: the slowest stage counts in full, the
// others with one chunk.
double nvls_tree_us(const Machine& machine, const NcclCall& call, MembersOfLevels members) {
  const bool many = call.nodes >= nccl::kNvlsTreeManyNodes;
  const double most = many ? nccl::kNvlsTreeManyNodesBytes : nccl::kNvlsChunkBytes;
  const double chunks = loop_bytes(call, most, nccl::kNvlsTreeChunks);
  const double inside = through_switch_us(machine, call, chunks);
  const double between = chunks / ring_rate(machine, members, kFirstNetwork);
  const double stages = 2 * inside + 2 * hops_between_nodes(call) * between - std::max(inside, between);
  const double of_heads =
      2 * (call.ranks - 1) / call.ranks * call.bytes / (most_nvls_tree_gbps(*machine.nccl, call) * 1e3);
  return std::max({through_switch_us(machine, call, call.bytes), tree_of_nodes_us(machine, call, members), of_heads}) +
         stages;
}

// Latency that network switches above the first level add to the steps that cross them.
double upper_switches_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, Algorithm algorithm) {
  double us = 0;
  for (std::size_t l = kFirstNetwork + 1; l < members.size(); ++l) {
    const double above = machine.levels[l].latency_us - machine.levels[kFirstNetwork].latency_us;
    const double parts = crossing_of(members, l).parts;
    const double switches = call.ranks / static_cast<double>(members[l]);
    const bool around = algorithm == Algorithm::ring || algorithm == Algorithm::exchange;
    const double hops = around ? call.rounds() * switches * (parts - 1) : call.rounds() * std::ceil(std::log2(parts));
    us += hops * above;
  }
  return us;
}

// Steps inside a node take the machine's time if it differs from NCCL's figure.
double simple_steps_us(const Nccl& nccl, const NcclCall& call, const NcclWay& way) {
  if (way.protocol != Protocol::simple) return 0;
  const nccl::Hops& hops = hops_in_node(nccl);
  const double more = nccl.simple_step_us - hops.ring[static_cast<std::size_t>(Protocol::simple)];
  if (way.algorithm == Algorithm::ring) return (call.ring_steps() - call.rounds() * (call.nodes - 1)) * more;
  return way.algorithm == Algorithm::tree ? 2 * (call.ranks_per_node() - 1) * more : 0;
}

}  // namespace

CollectivePrediction nccl_time(const Machine& machine, const NcclCall& call, MembersOfLevels members,
                               const NcclWay& way) {
  CollectivePrediction made{way.algorithm, way.protocol};
  made.latency_us = machine.nccl->start_us + nccl_latency_us(*machine.nccl, call, way) +
                    simple_steps_us(*machine.nccl, call, way) +
                    upper_switches_us(machine, call, members, way.algorithm);
  switch (way.algorithm) {
    case Algorithm::tree:
      made.transfer_us = tree_us(machine, call, members, way.protocol);
      break;
    case Algorithm::nvls:
      made.transfer_us = nvls_us(machine, call);
      break;
    case Algorithm::nvls_tree:
      made.transfer_us = nvls_tree_us(machine, call, members);
      break;
    case Algorithm::pat:
      made.transfer_us = ring_us(machine, call, members, way.protocol) / nccl::kPat;
      break;
    default:
      made.transfer_us = ring_us(machine, call, members, way.protocol);
  }
  return made;
}

CollectivePrediction nccl_all_to_all(const Machine& machine, double bytes, MembersOfLevels members) {
  constexpr double kPeersAtOnce = 8;  // peers that a channel's kernel serves (NCCL_MAX_DEV_WORK_P2P_PER_BATCH)
  const NcclCall call = nccl_call(schedules::Comm::all_to_all, bytes, members);
  CollectivePrediction made{Algorithm::exchange, Protocol::simple};
  made.latency_us = machine.nccl->start_us + nccl::kRingStartUs[2];
  for (std::size_t l = 0; l < members.size(); ++l) {
    const Crossing crossing = crossing_of(members, l);
    const double peers = (crossing.parts - 1) * crossing.members_per_part;
    if (peers == 0) continue;
    const nccl::Hops& hops = l == kNode ? hops_in_node(*machine.nccl) : nccl::kNetworkUs;
    made.latency_us += std::ceil(peers / kPeersAtOnce) * hops.ring[2];
    made.transfer_us += peers / call.ranks * bytes / port_rate(machine, members, l);
  }
  return made;
}

}  // namespace lockstep::simulator
