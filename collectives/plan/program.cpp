#include "collectives/plan/program.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

// Instructions done so far, [rank][lane].
using Progress = std::vector<std::vector<std::uint32_t>>;

bool satisfied(const Wait& wait, const Progress& progress) {
  return progress[static_cast<std::size_t>(wait.rank)][static_cast<std::size_t>(wait.lane)] >= wait.instructions;
}

// Runs a lane as far as it can go; returns whether it moved.
bool advance(const LaneProgram& lane, std::uint32_t& done, const Progress& progress) {
  const std::uint32_t before = done;
  while (done < lane.instructions.size()) {
    const auto waits = lane.waits_of(lane.instructions[done]);
    if (!std::all_of(waits.begin(), waits.end(), [&](const Wait& w) { return satisfied(w, progress); })) break;
    ++done;
  }
  return done != before;
}

}  // namespace

std::optional<std::string> find_deadlock(const Program& program) {
  Progress progress(program.ranks.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) progress[r].resize(program.ranks[r].lanes.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      for (std::size_t l = 0; l < program.ranks[r].lanes.size(); ++l) {
        moved |= advance(program.ranks[r].lanes[l], progress[r][l], progress);
      }
    }
  }
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (std::size_t l = 0; l < program.ranks[r].lanes.size(); ++l) {
      const LaneProgram& lane = program.ranks[r].lanes[l];
      if (progress[r][l] == lane.instructions.size()) continue;
      for (const Wait& wait : lane.waits_of(lane.instructions[progress[r][l]])) {
        if (satisfied(wait, progress)) continue;
        return "rank " + std::to_string(r) + " lane " + std::to_string(l) + " instruction " +
               std::to_string(progress[r][l]) + " waits for rank " + std::to_string(wait.rank) + " lane " +
               std::to_string(wait.lane) + " instruction " + std::to_string(wait.instructions);
      }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::plan
