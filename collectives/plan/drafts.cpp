#include "collectives/plan/drafts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/index.h"

namespace lockstep::plan {
namespace {

// Keeps waits that earlier instructions of the lane do not imply, the strongest of each other lane.
class WaitFilter {
 public:
  WaitFilter(int rank, int lane) : rank_(rank), lane_(lane) {}

  std::vector<Wait> filter(const std::vector<Wait>& waits) {
    std::map<std::pair<int, int>, std::uint32_t> strongest;
    for (const Wait& wait : waits) {
      if (wait.rank == rank_ && wait.lane == lane_) continue;
      auto& instructions = strongest.try_emplace({wait.rank, wait.lane}, wait.instructions).first->second;
      instructions = std::max(instructions, wait.instructions);
    }
    std::vector<Wait> kept;
    for (const auto& [lane, instructions] : strongest) {
      const auto [known, is_new] = known_.try_emplace(lane, instructions);
      if (!is_new && known->second >= instructions) continue;
      known->second = instructions;
      kept.push_back({lane.first, lane.second, instructions});
    }
    return kept;
  }

 private:
  const int rank_;
  const int lane_;
  std::map<std::pair<int, int>, std::uint32_t> known_;  // (rank, lane) -> instructions
};

template <class T>
std::uint32_t append(std::vector<T>& all, const std::vector<T>& more) {
  const auto first = static_cast<std::uint32_t>(all.size());
  all.insert(all.end(), more.begin(), more.end());
  return first;
}

}  // namespace

LaneProgram flatten(const std::vector<Draft>& drafts, int rank, int lane) {
  LaneProgram out;
  WaitFilter filter(rank, lane);
  for (const Draft& draft : drafts) {
    const std::vector<Wait> waits = filter.filter(draft.waits);
    Instruction instruction{};
    instruction.first_wait = append(out.waits, waits);
    instruction.num_waits = static_cast<std::uint32_t>(waits.size());
    instruction.first_source = append(out.sources, draft.sources);
    instruction.num_sources = static_cast<std::uint32_t>(draft.sources.size());
    instruction.first_destination = append(out.destinations, draft.destinations);
    instruction.num_destinations = static_cast<std::uint32_t>(draft.destinations.size());
    instruction.count = draft.count;
    instruction.completes = draft.completes;
    out.instructions.push_back(instruction);
  }
  return out;
}

void mark_awaited(Program& program) {
  const auto mark = [&program](const Wait& wait) {
    LaneProgram& lane = program.ranks[at(wait.rank)].lanes[at(wait.lane)];
    if (wait.instructions == 0) {
      lane.entry_awaited = true;
    } else {
      lane.instructions[wait.instructions - 1].awaited = true;
    }
  };
  for (const RankProgram& rank : program.ranks) {
    for (const LaneProgram& lane : rank.lanes) std::for_each(lane.waits.begin(), lane.waits.end(), mark);
    std::for_each(rank.exit_waits.begin(), rank.exit_waits.end(), mark);
  }
}

}  // namespace lockstep::plan
