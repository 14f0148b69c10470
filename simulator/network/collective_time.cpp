#include "simulator/network/collective_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simulator/network/nccl_tuner.h"

namespace lockstep::simulator {

Crossing crossing_of(MembersOfLevels members, std::size_t level) {
  const double below = level == 0 ? 1 : static_cast<double>(members[level - 1]);
  return {static_cast<double>(members[level]) / below, below};
}

TorusPart torus_part(const Torus& torus, std::int64_t members) {
  const auto columns = static_cast<double>(std::min<std::int64_t>(torus.columns, members));
  return {columns, std::ceil(static_cast<double>(members) / columns)};
}

double torus_load(const Torus& torus, std::int64_t members) {
  const TorusPart part = torus_part(torus, members);
  // For `taken` neighbouring positions of a ring of `size`. A whole ring: of the distances 1 to size - 1, those up to
  // size / 2 go forward, each over that many links. A line: half of the bytes of each half cross the middle.
  const auto along = [](double taken, double size) {
    const double half = std::floor(taken / 2);
    return taken == size ? half * (half + 1) / (2 * taken) : half * (taken - half) / taken;
  };
  return std::max(along(part.columns, torus.columns), along(part.rows, torus.rows));
}

double port_rate(const Machine& machine, MembersOfLevels members, std::size_t level) {
  constexpr double kBytesPerUs = 1e3;  // at 1 GB/s
  const NetworkLevel& crossed = machine.levels[level];
  const double links = level == 0 && machine.nccl ? machine.nccl->share_of_links(members.front()) : 1;
  return links * crossed.gbps * crossed.collective_efficiency / crossed.oversubscription * kBytesPerUs;
}

double ring_rate(const Machine& machine, MembersOfLevels members, std::size_t first_level) {
  double rate = std::numeric_limits<double>::infinity();
  for (std::size_t l = first_level; l < members.size(); ++l) {
    const Crossing crossing = crossing_of(members, l);
    if (crossing.parts > 1) rate = std::min(rate, crossing.members_per_part * port_rate(machine, members, l));
  }
  return rate;
}

namespace {

using schedules::Comm;

// Latency of n-1 steps around a ring. Most steps stay within a switch.
double ring_latency(const Machine& machine, MembersOfLevels members) {
  double latency = 0;
  double switches = static_cast<double>(members.back());
  std::size_t first = 0;
  if (const auto& torus = machine.levels.front().torus) {
    // Rings along rows, then along columns on each rank's share of its row.
    const TorusPart part = torus_part(*torus, members.front());
    switches = static_cast<double>(members.back()) / static_cast<double>(members.front());
    latency = (part.columns - 1 + part.rows - 1) * machine.levels.front().latency_us;
    first = 1;
  }
  for (std::size_t l = first; l < members.size(); ++l) {
    const double above = static_cast<double>(members.back()) / static_cast<double>(members[l]);
    latency += (switches - above) * machine.levels[l].latency_us;
    switches = above;
  }
  return latency;
}

double tree_latency(const Machine& machine, MembersOfLevels members) {
  double latency = 0;
  for (std::size_t l = 0; l < members.size(); ++l) {
    latency += std::ceil(std::log2(crossing_of(members, l).parts)) * machine.levels[l].latency_us;
  }
  return latency;
}

CollectivePrediction ring(const Machine& machine, Comm comm, double bytes, MembersOfLevels members) {
  const auto n = static_cast<double>(members.back());
  const double rounds = comm == Comm::all_reduce ? 2 : 1;
  return {CollectiveAlgorithm::ring, Protocol::none, rounds * ring_latency(machine, members),
          rounds * (n - 1) / n * bytes / ring_rate(machine, members)};
}

CollectivePrediction tree(const Machine& machine, double bytes, MembersOfLevels members) {
  return {CollectiveAlgorithm::tree, Protocol::none, 2 * tree_latency(machine, members),
          2 * bytes / ring_rate(machine, members)};
}

// One message to each other rank; those within a switch take the inner port, concurrently with those that leave it.
CollectivePrediction exchange(const Machine& machine, double bytes, MembersOfLevels members) {
  CollectivePrediction prediction{CollectiveAlgorithm::exchange};
  const auto n = static_cast<double>(members.back());
  for (std::size_t l = 0; l < members.size(); ++l) {
    const Crossing crossing = crossing_of(members, l);
    const double peers = (crossing.parts - 1) * crossing.members_per_part;
    prediction.latency_us += peers * machine.levels[l].latency_us;
    const auto& torus = machine.levels[l].torus;
    const double share = torus ? torus_load(*torus, members[l]) * static_cast<double>(members[l]) / n : peers / n;
    prediction.transfer_us += share * bytes / port_rate(machine, members, l);
  }
  return prediction;
}

// One message to each member from its previous neighbour: as slow as the slowest link that neighbours cross. One member
// of each switch sends to the next switch, through its own port.
CollectivePrediction shift(const Machine& machine, double bytes, MembersOfLevels members) {
  CollectivePrediction prediction{CollectiveAlgorithm::exchange};
  if (machine.nccl) {
    prediction.protocol = Protocol::simple;
    prediction.latency_us = machine.nccl->start_us + nccl::kRingStartUs[2];
  }
  const double start_us = prediction.latency_us;
  for (std::size_t l = 0; l < members.size(); ++l) {
    if (crossing_of(members, l).parts <= 1) continue;
    const double hop_us = !machine.nccl ? machine.levels[l].latency_us
                          : l == 0      ? nccl::kNvlinkUs.ring[2]
                                        : nccl::kNetworkUs.ring[2];
    const double transfer_us = bytes / port_rate(machine, members, l);
    if (start_us + hop_us + transfer_us < prediction.time_us()) continue;
    prediction.latency_us = start_us + hop_us;
    prediction.transfer_us = transfer_us;
  }
  return prediction;
}

CollectivePrediction fastest_plan(const Machine& machine, Comm comm, double bytes, MembersOfLevels members) {
  if (comm == Comm::all_to_all) return exchange(machine, bytes, members);
  const CollectivePrediction around = ring(machine, comm, bytes, members);
  // Neighbours in a tree are far apart on a torus and share its links.
  if (comm != Comm::all_reduce || (machine.levels.front().torus && members.front() > 1)) return around;
  const CollectivePrediction down = tree(machine, bytes, members);
  return down.time_us() < around.time_us() ? down : around;
}

CollectivePrediction by_nccl(const Machine& machine, Comm comm, double bytes, MembersOfLevels members) {
  if (comm == Comm::all_to_all) return nccl_all_to_all(machine, bytes, members);
  const NcclCall call = nccl_call(comm, bytes, members);
  return nccl_time(machine, call, members, nccl_choice(machine, call, members));
}

}  // namespace

std::string_view name_of(CollectiveAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"ring",      "tree", "exchange",    "nvls",
                                         "nvls_tree", "pat",  "copy_engine", "measured"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(Protocol protocol) {
  constexpr std::string_view kNames[] = {"ll", "ll128", "simple", ""};
  return kNames[static_cast<std::size_t>(protocol)];
}

std::string way_of(const CollectivePrediction& prediction) {
  std::string way(name_of(prediction.algorithm));
  if (prediction.protocol != Protocol::none) way += " " + std::string(name_of(prediction.protocol));
  return way;
}

double measured_us(const Measured::Collective& measured, double bytes) {
  const auto& [most_bytes, most_us] = measured.us_of_bytes.back();
  return bytes > most_bytes ? most_us * bytes / most_bytes : value_at(measured.us_of_bytes, bytes);
}

namespace {

CollectivePrediction fastest(const Machine& machine, Comm comm, double bytes, MembersOfLevels members) {
  const auto* const measured = machine.measured.find(schedules::name_of(comm), members.back());
  if (measured != nullptr) return {CollectiveAlgorithm::measured, Protocol::none, 0, measured_us(*measured, bytes)};
  if (comm == Comm::shift) return shift(machine, bytes, members);
  if (comm == Comm::broadcast || comm == Comm::reduce) {
    const auto n = static_cast<double>(members.back());
    return fastest(machine, Comm::all_gather, bytes * n / (n - 1), members);
  }
  return machine.nccl ? by_nccl(machine, comm, bytes, members) : fastest_plan(machine, comm, bytes, members);
}

}  // namespace

CollectivePrediction best_collective(const Machine& machine, Comm comm, double bytes, MembersOfLevels members,
                                     bool zero_cta) {
  if (members.empty() || members.back() <= 1 || comm == Comm::none) return {};
  if (zero_cta && copy_engines_can(machine, comm, members)) return nccl_by_copy_engines(machine, bytes, members);
  CollectivePrediction prediction = fastest(machine, comm, bytes, members);
  prediction.taken = machine.taken_by_collectives();
  return prediction;
}

}  // namespace lockstep::simulator
