#include "simulator/prices/collective_price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "simulator/network/collective_time.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using workload::RankSet;

constexpr double kPsPerUs = 1e6;

std::int64_t largest_on_a_switch(const NetworkLevel& level, const RankSet& set) {
  // The assignment of members to switches is periodic; the first switch may have fewer.
  const std::int64_t switches = level.ranks / std::gcd<std::int64_t>(level.ranks, set.stride) + 1;
  std::int64_t largest = 0;
  for (std::int64_t i = 0, seen = 0; i < set.count && seen < switches; ++seen) {
    const std::int64_t end = (set.at(i) / level.ranks + 1) * level.ranks;
    const std::int64_t next = std::min(set.count, (end - set.first + set.stride - 1) / set.stride);
    largest = std::max(largest, next - i);
    i = next;
  }
  return largest;
}

// Runs may share switches, so each member is counted.
std::int64_t largest_on_a_switch(const NetworkLevel& level, std::span<const RankSet> members) {
  std::map<std::int64_t, std::int64_t> on_switch;
  std::int64_t largest = 0;
  for (const RankSet& set : members) {
    for (std::int64_t i = 0; i < set.count; ++i) largest = std::max(largest, ++on_switch[set.at(i) / level.ranks]);
  }
  return largest;
}

std::int64_t total_of(const std::vector<schedules::Piece>& pieces, const CollectivePrice& price, double taken) {
  std::int64_t total = 0;
  std::int64_t beside_ps = 0;  // remaining time of collectives that overlap the next kernel
  for (const schedules::Piece& piece : pieces) {
    if (piece.op != schedules::Op::layer_collective) {
      total += together_ps(piece.amount, beside_ps, taken);
      beside_ps = 0;
      continue;
    }
    const std::int64_t ps = price(piece.comm, piece.group, piece.amount);
    (piece.beside_next ? beside_ps : total) += ps;
  }
  return total + beside_ps;
}

}  // namespace

std::vector<std::int64_t> members_a_level(const Machine& machine, std::span<const RankSet> members) {
  std::int64_t count = 0;
  for (const RankSet& set : members) count += set.count;
  std::vector<std::int64_t> most;
  for (const NetworkLevel& level : machine.levels) {
    if (&level == &machine.levels.back()) {
      most.push_back(count);
      break;
    }
    most.push_back(members.size() == 1 ? largest_on_a_switch(level, members.front())
                                       : largest_on_a_switch(level, members));
  }
  return most;
}

CollectivePrice price_in(const workload::Model& model, const workload::Layout& layout,
                         const schedules::Schedule& schedule, const Machine& machine) {
  std::vector<std::vector<std::int64_t>> members(schedules::kNumGroupKinds,
                                                 std::vector<std::int64_t>(machine.levels.size(), 1));
  for (const schedules::Group& group : workload::groups_of_places(model, layout, schedule)) {
    if (group.ranks.front() != 0) continue;
    members[static_cast<std::size_t>(group.kind)] = members_a_level(machine, workload::members_of(layout, group, 0));
  }
  return [machine, members](Comm comm, GroupKind kind, std::int64_t bytes) {
    const auto best =
        best_collective(machine, comm, static_cast<double>(bytes), members[static_cast<std::size_t>(kind)]);
    return static_cast<std::int64_t>(std::llround(best.time_us() * kPsPerUs));
  };
}

std::int64_t together_ps(std::int64_t kernel_ps, std::int64_t collective_ps, double taken) {
  const std::int64_t slowed = kernel_ps + static_cast<std::int64_t>(taken * static_cast<double>(collective_ps));
  // A kernel that ends before the collective, slowed down throughout, adds no time.
  return static_cast<double>(kernel_ps) <= (1 - taken) * static_cast<double>(collective_ps) ? collective_ps : slowed;
}

schedules::StageCosts totals_of(const workload::StageWork& work, const CollectivePrice& price, double taken) {
  schedules::StageCosts costs;
  costs.forward_ps = total_of(work.recipe.forward, price, taken);
  costs.input_gradient_ps = total_of(work.recipe.input_gradient, price, taken);
  costs.weight_gradient_ps =
      std::max<std::int64_t>(0, total_of(work.recipe.backward, price, taken) - costs.input_gradient_ps);
  costs.message_bytes = work.message_bytes;
  return costs;
}

}  // namespace lockstep::simulator
