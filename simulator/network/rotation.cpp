#include "simulator/network/rotation.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "collectives/plan/check.h"
#include "simulator/network/topology.h"

namespace lockstep::simulator {
namespace {

// Distance from a rank to its peer, upwards around all ranks.
int distance(int from, int to, int num_ranks) {
  return to < 0 ? -1 : (to - from + num_ranks) % num_ranks;
}

bool does_as(const plan::Plan& plan, int rank, int other) {
  const auto& lanes = plan.ranks[static_cast<std::size_t>(rank)].lanes;
  const auto& other_lanes = plan.ranks[static_cast<std::size_t>(other)].lanes;
  if (lanes.size() != other_lanes.size()) return false;
  const auto is_alike = [&](const plan::Step& a, const plan::Step& b) {
    return a.op == b.op && plan::chunks_of(a) == plan::chunks_of(b) && a.after == b.after &&
           distance(rank, a.peer, plan.num_ranks) == distance(other, b.peer, plan.num_ranks);
  };
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    if (!std::equal(lanes[l].begin(), lanes[l].end(), other_lanes[l].begin(), other_lanes[l].end(), is_alike)) {
      return false;
    }
  }
  return true;
}

// True if each rank's steps equal those of the rank one period before it.
bool turns_by(const plan::Plan& plan, int period) {
  for (int rank = period; rank < plan.num_ranks; ++rank) {
    if (!does_as(plan, rank, rank - period)) return false;
  }
  return true;
}

// True if the period is whole switches of every level. A torus is symmetric from row to row if its ranks go all the way
// around.
std::int64_t whole_switches(const Machine& machine, int num_ranks) {
  std::int64_t ranks = 1;
  if (const NetworkLevel& inner = machine.levels.front(); inner.torus && num_ranks <= inner.ranks) {
    return num_ranks == inner.ranks ? inner.torus->columns : num_ranks;
  }
  for (std::size_t l = 0; l + 1 < machine.levels.size(); ++l) {
    if (machine.levels[l].ranks < num_ranks) ranks = std::lcm(ranks, std::int64_t{machine.levels[l].ranks});
  }
  return ranks;
}

// True if each link of a torus carries messages of only one rank, among the period's ranks and those that they
// represent.
bool have_links_alone(const plan::Plan& plan, const Machine& machine, int period) {
  if (!machine.levels.front().torus) return true;
  std::vector<std::int64_t> place(static_cast<std::size_t>(plan.num_ranks));
  std::iota(place.begin(), place.end(), 0);
  const MachineNetwork network(machine, std::move(place));
  std::map<std::int32_t, int> owners;  // sender by link
  std::set<std::pair<int, int>> known;
  for (int rank = 0; rank < period; ++rank) {
    for (const auto& lane : plan.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const plan::Step& step : lane) {
        if (step.op != plan::Op::send || !known.insert({rank, step.peer}).second) continue;
        std::set<std::int32_t> of_path;
        const auto path = network.path_of_period(rank, step.peer, period);  // its links() refer to it
        for (const std::int32_t link : path.links()) {
          if (!of_path.insert(link).second || owners.try_emplace(link, rank).first->second != rank) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

int rotation_period(const plan::Plan& plan, const Machine& machine) {
  const std::int64_t whole = whole_switches(machine, plan.num_ranks);
  for (std::int64_t period = whole; period < plan.num_ranks; period += whole) {
    const auto ranks = static_cast<int>(period);
    if (plan.num_ranks % ranks == 0 && turns_by(plan, ranks) && have_links_alone(plan, machine, ranks)) return ranks;
  }
  return plan.num_ranks;
}

}  // namespace lockstep::simulator
