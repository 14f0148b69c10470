#include "simulator/network/topology.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
    const Link link{ps_per_byte, level.sharing == Sharing::fair};
    if (level.torus) {
      add_torus(level, link);
    } else {
      links_.resize(links_.size() + 2 * place_.size(), link);
    }
    if (level.oversubscription > 1) {
      std::map<std::int64_t, std::pair<std::int32_t, std::int32_t>> switches;  // by number: (our index, ranks in it)
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

void MachineNetwork::add_torus(const NetworkLevel& level, const Link& link) {
  torus_ = level.torus;
  torus_size_ = level.ranks;
  hop_ps_ = ps_of(level.torus->hop_us);
  for (const std::int64_t rank : place_) {
    const auto next = static_cast<std::int32_t>(links_.size());
    if (!torus_links_.try_emplace(rank / torus_size_, next).second) continue;
    links_.resize(links_.size() + 4 * static_cast<std::size_t>(torus_size_), link);
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

bool MachineNetwork::are_on_one_torus(std::int32_t a, std::int32_t b) const {
  const auto torus_of = [&](std::int32_t rank) { return place_[static_cast<std::size_t>(rank)] / torus_size_; };
  return torus_.has_value() && torus_of(a) == torus_of(b);
}

template <class Take>
void MachineNetwork::along_torus(std::int64_t from, std::int64_t to, const Take& take) const {
  const std::int64_t columns = torus_->columns;
  const std::int64_t rows = torus_->rows;
  std::int64_t column = from % columns;
  std::int64_t row = from / columns;
  // Calls step(+1 or -1) until `at` has gone the shorter way around `size` places.
  const auto go = [](std::int64_t at, std::int64_t until, std::int64_t size, const auto& step) {
    const std::int64_t ahead = (until - at + size) % size;
    const std::int64_t steps = std::min(ahead, size - ahead);
    for (std::int64_t i = 0; i < steps; ++i) step(2 * ahead <= size ? 1 : -1);
  };
  go(column, to % columns, columns, [&](std::int64_t way) {
    take(row * columns + column, way > 0 ? 0 : 1);
    column = (column + way + columns) % columns;
  });
  go(row, to / columns, rows, [&](std::int64_t way) {
    take(row * columns + column, way > 0 ? 2 : 3);
    row = (row + way + rows) % rows;
  });
}

Path MachineNetwork::path_on_torus(std::int32_t from, std::int32_t to) const {
  const std::int64_t size = torus_size_;
  const std::int64_t torus = place_[static_cast<std::size_t>(from)] / size;
  const std::int32_t first = torus_links_.at(torus);
  Path path(levels_.front().latency_ps - hop_ps_, true);
  along_torus(place_[static_cast<std::size_t>(from)] % size, place_[static_cast<std::size_t>(to)] % size,
              [&](std::int64_t device, std::int32_t way) {
                path.add(first + static_cast<std::int32_t>(4 * device) + way);
                path.latency_ps += hop_ps_;
              });
  return path;
}

Path MachineNetwork::path(std::int32_t from, std::int32_t to) const {
  if (are_on_one_torus(from, to)) return path_on_torus(from, to);
  const Level& level = levels_[common_level(from, to)];
  Path path(level.latency_ps);
  path.add(level.first_port + 2 * from);
  if (level.first_uplink >= 0) {
    path.add(level.first_uplink + 2 * level.switch_of[static_cast<std::size_t>(from)]);
    path.add(level.first_uplink + 2 * level.switch_of[static_cast<std::size_t>(to)] + 1);
  }
  path.add(level.first_port + 2 * to + 1);
  return path;
}

// Links of a torus represent those of devices one period further. Otherwise takes the sender's half of its own path,
// and the receiver's half of the path of the equivalent message to the receiver's representative.
Path MachineNetwork::path_of_period(std::int32_t from, std::int32_t to, std::int32_t period) const {
  const Path own = path(from, to);
  Path made(own.latency_ps, own.is_buffered);
  if (are_on_one_torus(from, to)) {
    for (const std::int32_t link : own.links()) made.add(link % (4 * period));
    return made;
  }
  const auto num_ranks = static_cast<std::int32_t>(place_.size());
  const std::int32_t shift = to - to % period;
  const Path alike = path((from - shift + num_ranks) % num_ranks, to - shift);
  const std::size_t half = own.links().size() / 2;
  for (const std::int32_t link : own.links().first(half)) made.add(link);
  for (const std::int32_t link : alike.links().subspan(half)) made.add(link);
  return made;
}

}  // namespace lockstep::simulator
