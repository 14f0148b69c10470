#include "simulator/network/rotation.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "collectives/plan/check.h"

namespace lockstep::simulator {
namespace {

// From a rank to its peer, upwards around all ranks.
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

// Each rank as the one a period before it, which is as the one before that.
bool turns_by(const plan::Plan& plan, int period) {
  for (int rank = period; rank < plan.num_ranks; ++rank) {
    if (!does_as(plan, rank, rank - period)) return false;
  }
  return true;
}

// Whole switches of every level.
std::int64_t whole_switches(const Machine& machine, int num_ranks) {
  std::int64_t ranks = 1;
  for (std::size_t l = 0; l + 1 < machine.levels.size(); ++l) {
    if (machine.levels[l].ranks < num_ranks) ranks = std::lcm(ranks, std::int64_t{machine.levels[l].ranks});
  }
  return ranks;
}

}  // namespace

int rotation_period(const plan::Plan& plan, const Machine& machine) {
  const std::int64_t whole = whole_switches(machine, plan.num_ranks);
  for (std::int64_t period = whole; period < plan.num_ranks; period += whole) {
    if (plan.num_ranks % period == 0 && turns_by(plan, static_cast<int>(period))) return static_cast<int>(period);
  }
  return plan.num_ranks;
}

}  // namespace lockstep::simulator
