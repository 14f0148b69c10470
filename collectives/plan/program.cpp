#include "collectives/plan/program.h"

#include <algorithm>

#include "collectives/plan/lower_parts.h"
#include "core/index.h"

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

namespace {

// Copies slices that sends read to new scratch slots; the same slice only once until it is written again.
class SendStaging {
 public:
  explicit SendStaging(const Plan& plan) : plan_(plan) {}

  Plan run() {
    Plan staged = plan_;
    int slots = plan_.scratch_chunks;
    for (std::size_t r = 0; r < plan_.ranks.size(); ++r) {
      next_slot_ = plan_.scratch_chunks;
      stage_rank(plan_.ranks[r], staged.ranks[r]);
      slots = std::max(slots, next_slot_);
    }
    staged.scratch_chunks = slots;
    return staged;
  }

 private:
  struct Staged {
    Slice from;
    int slot;
  };

  void stage_rank(const RankSteps& from, RankSteps& to) {
    std::vector<std::vector<int>> moved;  // [lane][step] -> index after staging
    for (std::size_t l = 0; l < from.lanes.size(); ++l) {
      moved.emplace_back();
      to.lanes[l].clear();
      staged_.clear();
      for (const Step& step : from.lanes[l]) {
        stage_step(step, to.lanes[l]);
        moved.back().push_back(static_cast<int>(to.lanes[l].size()) - 1);
      }
    }
    for (Lane& lane : to.lanes) {
      for (Step& step : lane) {
        for (After& after : step.after) after.step = moved.at(at(after.lane)).at(at(after.step));
      }
    }
  }

  void stage_step(const Step& step, Lane& lane) {
    if (step.op != Op::send || step.src.buffer == Buffer::scratch) {
      if (writes_dst(step.op)) {
        std::erase_if(staged_,
                      [&](const Staged& s) { return overlap(s.from, step.dst) || step.dst.buffer != Buffer::scratch; });
      }
      lane.push_back(step);
      return;
    }
    auto known = std::find_if(staged_.begin(), staged_.end(), [&](const Staged& s) { return s.from == step.src; });
    if (known == staged_.end()) {
      lane.push_back({Op::copy, -1, step.src, scratch(next_slot_, step.src.count), step.after});
      staged_.push_back({step.src, next_slot_});
      known = staged_.end() - 1;
      next_slot_ += step.src.count;
    }
    Step send = step;
    send.src = scratch(known->slot, step.src.count);
    lane.push_back(send);
  }

  const Plan& plan_;
  std::vector<Staged> staged_;
  int next_slot_ = 0;
};

}  // namespace

Plan stage_sends(const Plan& plan) {
  return SendStaging(plan).run();
}

Plan stage_input(const Plan& plan) {
  Plan staged = plan;
  const int first_slot = plan.scratch_chunks;
  int most = 0;
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    const int chunks = input_chunks(plan, rank);
    auto& lanes = staged.ranks[at(rank)].lanes;
    if (chunks == 0 || lanes.empty()) continue;
    most = std::max(most, chunks);
    const auto redirect = [&](Slice& slice) {
      if (slice.buffer == Buffer::input && slice.count > 0) slice = scratch(first_slot + slice.first, slice.count);
    };
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      for (Step& step : lanes[l]) {
        redirect(step.src);
        for (After& after : step.after) after.step += after.lane == 0 ? 1 : 0;
      }
      // Other lanes begin after the copy, which is the first step of lane 0.
      if (l > 0 && !lanes[l].empty() && lanes[l].front().after.empty()) lanes[l].front().after = {{0, 0}};
    }
    lanes[0].insert(lanes[0].begin(), Step{Op::copy, -1, input(0, chunks), scratch(first_slot, chunks), {}});
  }
  staged.scratch_chunks = first_slot + most;
  return staged;
}

}  // namespace lockstep::plan
