#include "simulator/network/topology.h"

#include <cmath>
#include <limits>
#include <map>

namespace lockstep::simulator {
namespace {

constexpr double kPsPerUs = 1e6;
constexpr double kPsPerByteAtOneGbps = 1e3;

std::int64_t ps_of(double us) {
  return std::llround(us * kPsPerUs);
}

}  // namespace

MachineNetwork::MachineNetwork(const Machine& machine, std::vector<std::int64_t> place) : place_(std::move(place)) {
  std::int64_t below = 1;  // devices that one switch of the level below joins
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    const NetworkLevel& level = machine.levels[l];
    const double rate = level.gbps * level.efficiency;
    Level made{.ranks = l + 1 == machine.levels.size() ? std::numeric_limits<std::int64_t>::max() : level.ranks,
               .latency_ps = ps_of(level.latency_us),
               .first_port = static_cast<std::int32_t>(links_.size())};
    const double ps_per_byte = rate > 0 ? kPsPerByteAtOneGbps / rate : 0;
    links_.resize(links_.size() + 2 * place_.size(), {ps_per_byte, level.sharing == Sharing::fair});
    if (level.oversubscription > 1) {
      std::map<std::int64_t, std::pair<std::int32_t, std::int32_t>> switches;  // by number: ours, ranks in it
      for (const std::int64_t rank : place_) {
        auto& known = switches.try_emplace(rank / below, static_cast<std::int32_t>(switches.size()), 0).first->second;
        ++known.second;
        made.switch_of.push_back(known.first);
      }
      made.first_uplink = static_cast<std::int32_t>(links_.size());
      links_.resize(links_.size() + 2 * switches.size());
      for (const auto& [number, known] : switches) {
        const Link uplink{ps_per_byte * level.oversubscription / known.second, true};
        const auto up = static_cast<std::size_t>(made.first_uplink) + 2 * static_cast<std::size_t>(known.first);
        links_[up] = links_[up + 1] = uplink;
      }
    }
    levels_.push_back(std::move(made));
    below = level.ranks;
  }
}

std::size_t MachineNetwork::common_level(std::int32_t a, std::int32_t b) const {
  std::size_t level = 0;
  while (place_[static_cast<std::size_t>(a)] / levels_[level].ranks !=
         place_[static_cast<std::size_t>(b)] / levels_[level].ranks) {
    ++level;
  }
  return level;
}

Path MachineNetwork::path(std::int32_t from, std::int32_t to) const {
  const Level& level = levels_[common_level(from, to)];
  Path path{.latency_ps = level.latency_ps};
  path.add(level.first_port + 2 * from);
  if (level.first_uplink >= 0) {
    path.add(level.first_uplink + 2 * level.switch_of[static_cast<std::size_t>(from)]);
    path.add(level.first_uplink + 2 * level.switch_of[static_cast<std::size_t>(to)] + 1);
  }
  path.add(level.first_port + 2 * to + 1);
  return path;
}

}  // namespace lockstep::simulator
