#include "simulator/network/rates.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
    if (crossing.parts > 1) rate = std::min(rate, crossing.members_a_part * port_rate(machine, members, l));
  }
  return rate;
}

}  // namespace lockstep::simulator
