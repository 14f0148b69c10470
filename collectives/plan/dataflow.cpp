#include "collectives/plan/dataflow.h"

#include "collectives/plan/messages.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

// Steps that other steps name in their `after`: [lane][step] of one rank.
std::vector<std::vector<bool>> after_targets(const RankSteps& rank) {
  std::vector<std::vector<bool>> targets;
  for (const Lane& lane : rank.lanes) targets.emplace_back(lane.size(), false);
  for (const Lane& lane : rank.lanes) {
    for (const Step& step : lane) {
      if (step.after.lane >= 0) targets.at(at(step.after.lane)).at(at(step.after.step)) = true;
    }
  }
  return targets;
}

bool accumulates(const Step& step) {
  return (step.op == Op::recv_reduce && step.src == step.dst) ||
         (step.op == Op::reduce && !overlap(step.src, step.dst));
}

// Cells of scratch are not contiguous, as each has room for the longest.
bool touches_scratch(const Plan& plan, const Step& step, const StepPlace& partner) {
  if (writes_dst(step.op) && step.dst.buffer == Buffer::scratch) return true;
  if (reads_src(step.op) && step.src.buffer == Buffer::scratch) return true;
  if (partner.rank < 0) return false;
  const Step& send = plan.ranks[at(partner.rank)].lanes[at(partner.lane)][at(partner.step)];
  return send.src.buffer == Buffer::scratch;
}

// Merges runs of writes that accumulate into one slice: nothing in between reads it, only the first step of the run
// waits for another lane, and other steps wait only for the last.
LaneGroups group_lane(const Lane& lane, const std::vector<bool>& is_target, bool fuse) {
  LaneGroups result;
  result.group_of_step.assign(lane.size(), -1);
  bool open = false;
  for (std::size_t i = 0; i < lane.size(); ++i) {
    const Step& step = lane[i];
    if (step.op == Op::send) {
      // In place an input slice may be the destination itself; sends of input end a run to be safe.
      if (open && (overlap(step.src, result.groups.back().destination) || is_target[i])) open = false;
      continue;
    }
    const bool joins =
        fuse && open && accumulates(step) && step.dst == result.groups.back().destination && step.after.lane < 0;
    if (!joins) result.groups.push_back({step.dst, {}, 0});
    result.groups.back().steps.push_back(static_cast<int>(i));
    result.group_of_step[i] = static_cast<int>(result.groups.size()) - 1;
    open = !is_target[i];
  }
  return result;
}

}  // namespace

bool overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.first < b.first + b.count && b.first < a.first + a.count;
}

Partners match_channels(const Plan& plan) {
  Partners partners(plan.ranks.size());
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    for (const Lane& lane : plan.ranks[r].lanes) partners[r].emplace_back(lane.size());
  }
  const StepIds ids(plan);
  for (const Message& message : match_messages(plan, ids).list) {
    LOCKSTEP_CHECK(message.send >= 0 && message.recv >= 0, "a message without a partner: the plan was not checked");
    const StepPlace& send = ids.place(message.send);
    const StepPlace& recv = ids.place(message.recv);
    partners[at(send.rank)][at(send.lane)][at(send.step)] = recv;
    partners[at(recv.rank)][at(recv.lane)][at(recv.step)] = send;
  }
  return partners;
}

Grouping group_steps(const Plan& plan, const Partners& partners, int segments, bool fuse) {
  Grouping grouping(plan.ranks.size());
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const auto targets = after_targets(plan.ranks[r]);
    for (std::size_t l = 0; l < plan.ranks[r].lanes.size(); ++l) {
      const Lane& lane = plan.ranks[r].lanes[l];
      LaneGroups groups = group_lane(lane, targets[l], fuse);
      int next = 0;
      for (Group& group : groups.groups) {
        bool scratch = false;
        for (int step : group.steps) scratch |= touches_scratch(plan, lane[at(step)], partners[r][l][at(step)]);
        group.pieces_per_chunk = scratch && group.destination.count > 1 ? segments : 0;
        group.num_instructions = group.pieces_per_chunk > 0 ? segments * group.destination.count : segments;
        group.first_instruction = next;
        next += group.num_instructions;
      }
      grouping[r].push_back(std::move(groups));
    }
  }
  return grouping;
}

CellRange piece_cells(const Group& group, int i) {
  if (group.pieces_per_chunk > 0) return {i, i + 1};
  return {i * group.destination.count, (i + 1) * group.destination.count};
}

int instruction_of_cell(const Group& group, int i) {
  return group.first_instruction + (group.pieces_per_chunk > 0 ? i : i / group.destination.count);
}

}  // namespace lockstep::plan
