#include "simulator/network/nccl_tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "core/error.h"
#include "simulator/network/collective_time.h"

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
  CollectivePrediction prediction{way.algorithm, way.protocol};
  prediction.latency_us = machine.nccl->start_us + nccl_latency_us(*machine.nccl, call, way) +
                          simple_steps_us(*machine.nccl, call, way) +
                          upper_switches_us(machine, call, members, way.algorithm);
  switch (way.algorithm) {
    case Algorithm::tree:
      prediction.transfer_us = tree_us(machine, call, members, way.protocol);
      break;
    case Algorithm::nvls:
      prediction.transfer_us = nvls_us(machine, call);
      break;
    case Algorithm::nvls_tree:
      prediction.transfer_us = nvls_tree_us(machine, call, members);
      break;
    case Algorithm::pat:
      prediction.transfer_us = ring_us(machine, call, members, way.protocol) / nccl::kPat;
      break;
    default:
      prediction.transfer_us = ring_us(machine, call, members, way.protocol);
  }
  return prediction;
}

CollectivePrediction nccl_all_to_all(const Machine& machine, double bytes, MembersOfLevels members) {
  constexpr double kPeersAtOnce = 8;  // peers that a channel's kernel serves (NCCL_MAX_DEV_WORK_P2P_PER_BATCH)
  const NcclCall call = nccl_call(schedules::Comm::all_to_all, bytes, members);
  CollectivePrediction prediction{Algorithm::exchange, Protocol::simple};
  prediction.latency_us = machine.nccl->start_us + nccl::kRingStartUs[2];
  for (std::size_t l = 0; l < members.size(); ++l) {
    const Crossing crossing = crossing_of(members, l);
    const double peers = (crossing.parts - 1) * crossing.members_per_part;
    if (peers == 0) continue;
    const nccl::Hops& hops = l == kNode ? hops_in_node(*machine.nccl) : nccl::kNetworkUs;
    prediction.latency_us += std::ceil(peers / kPeersAtOnce) * hops.ring[2];
    prediction.transfer_us += peers / call.ranks * bytes / port_rate(machine, members, l);
  }
  return prediction;
}

bool copy_engines_can(const Machine& machine, schedules::Comm comm, MembersOfLevels members) {
  const bool sums = comm != schedules::Comm::all_gather && comm != schedules::Comm::all_to_all;
  return machine.nccl && machine.nccl->inside == NodeLink::nvlink && !sums && members.front() == members.back();
}

CollectivePrediction nccl_by_copy_engines(const Machine& machine, double bytes, MembersOfLevels members) {
  const NetworkLevel& node = machine.levels[kNode];
  const auto n = static_cast<double>(members.front());
  const double rate = machine.nccl->share_of_links(members.front()) * node.gbps * nccl::kCopyEngine * 1e3;
  return {Algorithm::copy_engine, Protocol::none, machine.nccl->start_us + 2 * node.latency_us,
          (n - 1) / n * bytes / rate};
}

namespace {

double& number_in(Machine& machine, NcclNumber number) {
  switch (number) {
    case NcclNumber::collective_efficiency:
      return machine.levels.front().collective_efficiency;
    case NcclNumber::simple_step_us:
      return machine.nccl->simple_step_us;
    case NcclNumber::ll128:
      return machine.nccl->ll128;
    case NcclNumber::last_copy:
      return machine.nccl->last_copy;
    case NcclNumber::nvls:
      return machine.nccl->nvls;
    case NcclNumber::start_us:
      break;
  }
  return machine.nccl->start_us;
}

bool is_share(NcclNumber number) {
  return number == NcclNumber::collective_efficiency || number == NcclNumber::ll128 || number == NcclNumber::nvls;
}

double squared_errors(const Machine& machine, std::span<const CollectivePoint> points) {
  double sum = 0;
  for (const CollectivePoint& point : points) {
    const double error = predicted_us(machine, point) / point.us - 1;
    sum += error * error;
  }
  return sum;
}

std::vector<CollectivePoint> points_of(const Machine& base, std::span<const RowLine> rows) {
  std::vector<CollectivePoint> points;
  for (const RowLine& row : rows) {
    if (row.ranks < 2 || row.ranks > base.levels.front().ranks) continue;
    for (const auto comm : {schedules::Comm::all_reduce, schedules::Comm::all_gather, schedules::Comm::reduce_scatter,
                            schedules::Comm::all_to_all}) {
      if (row.collective == schedules::name_of(comm)) points.push_back({comm, row.ranks, row.bytes, row.time_us});
    }
  }
  return points;
}

// The numbers on which the time of any of the points depends.
std::vector<NcclNumber> numbers_of(const Machine& machine, std::span<const CollectivePoint> points) {
  std::vector<NcclNumber> numbers{NcclNumber::start_us};
  const auto add_if = [&](NcclNumber number, auto depends) {
    if (std::any_of(points.begin(), points.end(),
                    [&](const auto& point) { return depends(predicted(machine, point)); })) {
      numbers.push_back(number);
    }
  };
  add_if(NcclNumber::simple_step_us, [](const CollectivePrediction& prediction) {
    return prediction.protocol == Protocol::simple && prediction.algorithm == CollectiveAlgorithm::ring;
  });
  add_if(NcclNumber::collective_efficiency,
         [](const CollectivePrediction& prediction) { return prediction.algorithm != CollectiveAlgorithm::nvls; });
  add_if(NcclNumber::ll128,
         [](const CollectivePrediction& prediction) { return prediction.protocol == Protocol::ll128; });
  add_if(NcclNumber::nvls,
         [](const CollectivePrediction& prediction) { return prediction.algorithm == CollectiveAlgorithm::nvls; });
  return numbers;
}

}  // namespace

CollectivePrediction predicted(const Machine& machine, const CollectivePoint& point) {
  std::vector<std::int64_t> members(machine.levels.size(), point.ranks);
  members.front() = point.ranks / point.nodes;
  return best_collective(machine, point.comm, point.bytes, members);
}

double predicted_us(const Machine& machine, const CollectivePoint& point) {
  return predicted(machine, point).time_us();
}

double value_of(const Machine& machine, NcclNumber number) {
  Machine copy = machine;
  return number_in(copy, number);
}

// Pattern search: changes one number at a time by factors that shrink when no change helps.
Machine fit_nccl(Machine machine, std::span<const CollectivePoint> points, std::span<const NcclNumber> numbers) {
  constexpr double kFirstStep = 0.2;
  constexpr double kLastStep = 1e-5;
  double least = squared_errors(machine, points);
  for (double step = kFirstStep; step > kLastStep;) {
    bool better = false;
    for (const NcclNumber number : numbers) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        Machine tried = machine;
        number_in(tried, number) *= factor;
        if (is_share(number) && number_in(tried, number) > 1) continue;
        const double sum = squared_errors(tried, points);
        if (sum >= least) continue;
        least = sum;
        machine = std::move(tried);
        better = true;
        break;
      }
    }
    if (!better) step /= 2;
  }
  return machine;
}

Machine calibrate_nccl(const Machine& base, std::span<const RowLine> rows, const std::string& where) {
  constexpr std::size_t kFewestSizes = 4;
  if (!base.nccl) throw core::usage_error(base.name + ": has no NCCL; allowed: a description with `nccl`");
  const std::vector<CollectivePoint> points = points_of(base, rows);
  std::set<double> sizes;
  for (const CollectivePoint& point : points) sizes.insert(point.bytes);
  if (sizes.size() < kFewestSizes) {
    throw core::usage_error(where + ": rows of NCCL's collectives at " + std::to_string(sizes.size()) +
                            " sizes within one node; allowed: four or more (all_reduce_perf --transport nccl --algo "
                            "library -b 1K -e 1G --json)");
  }
  const std::vector<NcclNumber> numbers = numbers_of(base, points);
  Machine fitted = fit_nccl(base, points, numbers);
  double worst = 0;
  for (const CollectivePoint& point : points) {
    worst = std::max(worst, std::abs(predicted_us(fitted, point) / point.us - 1));
  }
  std::string names;
  for (const NcclNumber number : numbers) {
    names += (names.empty() ? "" : ", ") + std::string(kNcclNumbers.at(static_cast<std::size_t>(number)));
  }
  fitted.name = base.name + ", collectives as measured";
  fitted.sources.push_back("measured by Lockstep: " + where + ": " + names + " fitted to " +
                           std::to_string(points.size()) + " rows of NCCL's collectives, at worst off by " +
                           std::to_string(std::lround(100 * worst)) + " %");
  return fitted;
}

}  // namespace lockstep::simulator
