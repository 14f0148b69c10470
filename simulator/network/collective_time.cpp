#include "simulator/network/collective_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::simulator {
namespace {

using schedules::Comm;

constexpr double kBytesPerUs = 1e3;  // at 1 GB/s

// Of a level: switches of the level below that a group's members come from, and members in each of those.
struct Crossing {
  double parts = 1;
  double members_a_part = 1;
};

Crossing crossing_of(std::span<const std::int64_t> members, std::size_t level) {
  const double below = level == 0 ? 1 : static_cast<double>(members[level - 1]);
  return {static_cast<double>(members[level]) / below, below};
}

// Bytes a microsecond that one port of a level carries for a collective.
double port_rate(const NetworkLevel& level) {
  return level.gbps * level.collective_efficiency / level.oversubscription * kBytesPerUs;
}

// Of a ring over all members: the least of what it passes.
double ring_rate(const Machine& machine, std::span<const std::int64_t> members) {
  double rate = std::numeric_limits<double>::infinity();
  for (std::size_t l = 0; l < members.size(); ++l) {
    const Crossing crossing = crossing_of(members, l);
    if (crossing.parts > 1) rate = std::min(rate, crossing.members_a_part * port_rate(machine.levels[l]));
  }
  return rate;
}

// Of going once around a ring but for its last step. Most steps stay within a switch.
double ring_latency(const Machine& machine, std::span<const std::int64_t> members) {
  double latency = 0;
  double switches = static_cast<double>(members.back());
  for (std::size_t l = 0; l < members.size(); ++l) {
    const double above = static_cast<double>(members.back()) / static_cast<double>(members[l]);
    latency += (switches - above) * machine.levels[l].latency_us;
    switches = above;
  }
  return latency;
}

double tree_latency(const Machine& machine, std::span<const std::int64_t> members) {
  double latency = 0;
  for (std::size_t l = 0; l < members.size(); ++l) {
    latency += std::ceil(std::log2(crossing_of(members, l).parts)) * machine.levels[l].latency_us;
  }
  return latency;
}

CollectivePrediction ring(const Machine& machine, Comm comm, double bytes, std::span<const std::int64_t> members) {
  const auto n = static_cast<double>(members.back());
  const double rounds = comm == Comm::all_reduce ? 2 : 1;
  return {CollectiveAlgorithm::ring, rounds * ring_latency(machine, members),
          rounds * (n - 1) / n * bytes / ring_rate(machine, members)};
}

CollectivePrediction tree(const Machine& machine, double bytes, std::span<const std::int64_t> members) {
  return {CollectiveAlgorithm::tree, 2 * tree_latency(machine, members), 2 * bytes / ring_rate(machine, members)};
}

// To each of the others one message; those within a switch take the inner port, beside those that leave it.
CollectivePrediction exchange(const Machine& machine, double bytes, std::span<const std::int64_t> members) {
  CollectivePrediction made{CollectiveAlgorithm::exchange};
  const auto n = static_cast<double>(members.back());
  for (std::size_t l = 0; l < members.size(); ++l) {
    const Crossing crossing = crossing_of(members, l);
    const double peers = (crossing.parts - 1) * crossing.members_a_part;
    made.latency_us += peers * machine.levels[l].latency_us;
    made.transfer_us += peers / n * bytes / port_rate(machine.levels[l]);
  }
  return made;
}

}  // namespace

std::string_view name_of(CollectiveAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"ring", "tree", "exchange", "measured"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

CollectivePrediction predict_collective(const Machine& machine, Comm comm, CollectiveAlgorithm algorithm, double bytes,
                                        std::span<const std::int64_t> members) {
  if (members.empty() || members.back() <= 1 || comm == Comm::none) return {algorithm};
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      return ring(machine, comm, bytes, members);
    case CollectiveAlgorithm::tree:
      return tree(machine, bytes, members);
    case CollectiveAlgorithm::exchange:
      return exchange(machine, bytes, members);
    case CollectiveAlgorithm::measured:
      break;
  }
  return {algorithm};
}

double measured_us(const Measured::Collective& measured, double bytes) {
  const auto& [most_bytes, most_us] = measured.us_of_bytes.back();
  return bytes > most_bytes ? most_us * bytes / most_bytes : value_at(measured.us_of_bytes, bytes);
}

CollectivePrediction best_collective(const Machine& machine, Comm comm, double bytes,
                                     std::span<const std::int64_t> members) {
  if (!members.empty() && members.back() > 1 && comm != Comm::none) {
    const auto* const measured = machine.measured.find(schedules::name_of(comm), members.back());
    if (measured != nullptr) return {CollectiveAlgorithm::measured, 0, measured_us(*measured, bytes)};
  }
  if (comm == Comm::all_to_all) {
    return predict_collective(machine, comm, CollectiveAlgorithm::exchange, bytes, members);
  }
  const auto around = predict_collective(machine, comm, CollectiveAlgorithm::ring, bytes, members);
  if (comm != Comm::all_reduce) return around;
  const auto down = predict_collective(machine, comm, CollectiveAlgorithm::tree, bytes, members);
  return down.time_us() < around.time_us() ? down : around;
}

}  // namespace lockstep::simulator
