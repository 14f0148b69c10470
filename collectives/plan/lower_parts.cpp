#include "collectives/plan/lower_parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "collectives/plan/messages.h"
#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

// Steps that other steps name in their `after`: [step id].
std::vector<bool> after_targets(const Plan& plan, const StepIds& ids) {
  std::vector<bool> targets(at(ids.num_steps()), false);
  for (int id = 0; id < ids.num_steps(); ++id) {
    const StepIndex& where = ids.index(id);
    for (const After& after : step_at(plan, where).after) targets.at(at(ids.id(where.rank, after))) = true;
  }
  return targets;
}

bool accumulates(const Step& step) {
  return (step.op == Op::recv_reduce && step.src == step.dst) ||
         (step.op == Op::reduce && !overlap(step.src, step.dst));
}

// Cells of scratch are not contiguous, as each has room for the longest.
bool touches_scratch(const Plan& plan, const StepIds& ids, const Messages& messages, int id) {
  const Step& step = step_at(plan, ids.index(id));
  if (writes_dst(step.op) && step.dst.buffer == Buffer::scratch) return true;
  if (reads_src(step.op) && step.src.buffer == Buffer::scratch) return true;
  if (!reads_peer(step.op)) return false;
  return step_at(plan, ids.index(messages.send_of(id))).src.buffer == Buffer::scratch;
}

// Merges runs of writes that accumulate into one slice: nothing in between reads it, only the first step of the run
// waits for another lane, and other steps wait only for the last.
void group_lane(const Plan& plan, const StepIds& ids, int lane, const std::vector<bool>& is_target, bool fuse,
                Grouping& result) {
  bool open = false;
  for (int id = ids.lane_begin(lane); id < ids.lane_end(lane); ++id) {
    const Step& step = step_at(plan, ids.index(id));
    if (step.op == Op::send) {
      // In place an input slice may be the destination itself; sends of input end a run to be safe.
      if (open && (overlap(step.src, result.groups.back().destination) || is_target[at(id)])) open = false;
      continue;
    }
    const bool joins =
        fuse && open && accumulates(step) && step.dst == result.groups.back().destination && step.after.empty();
    if (!joins) result.groups.push_back({step.dst, {}, 0});
    result.groups.back().steps.push_back(id);
    result.of_step[at(id)] = static_cast<int>(result.groups.size()) - 1;
    open = !is_target[at(id)];
  }
}

}  // namespace

bool overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.first < b.first + b.count && b.first < a.first + a.count;
}

Grouping group_steps(const Plan& plan, const StepIds& ids, const Messages& messages, int segments, bool fuse) {
  Grouping grouping;
  grouping.of_step.assign(at(ids.num_steps()), -1);
  const std::vector<bool> targets = after_targets(plan, ids);
  for (int lane = 0; lane < ids.num_lanes(); ++lane) {
    const std::size_t first = grouping.groups.size();
    group_lane(plan, ids, lane, targets, fuse, grouping);
    int next = 0;
    for (std::size_t g = first; g < grouping.groups.size(); ++g) {
      Group& group = grouping.groups[g];
      const bool scratch = std::any_of(group.steps.begin(), group.steps.end(),
                                       [&](int id) { return touches_scratch(plan, ids, messages, id); });
      group.pieces_per_chunk = scratch && group.destination.count > 1 ? segments : 0;
      group.num_instructions = group.pieces_per_chunk > 0 ? segments * group.destination.count : segments;
      group.first_instruction = next;
      next += group.num_instructions;
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

CellMemory::CellMemory(const Plan& plan, const collectives::Operation& operation, int segments)
    : plan_(plan),
      in_place_(operation.in_place),
      segments_(segments),
      element_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
      ranks_(plan.ranks.size()) {
  std::int64_t longest_block = 0;
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    RankMemory& memory = ranks_[at(rank)];
    memory.offsets = {input_offsets(operation, plan_.num_ranks, rank),
                      output_offsets(operation, plan_.num_ranks, rank)};
    const std::array<int, 3> chunks{input_chunks(plan_, rank), output_chunks(plan_, rank), plan_.scratch_chunks};
    for (std::size_t b = 0; b < 3; ++b) memory.cells[b].resize(at(std::int64_t{segments_} * chunks[b]));
    memory.scratch_content.resize(at(plan_.scratch_chunks));
    fill_contents(memory);
    for (const auto& offsets : memory.offsets) {
      for (std::size_t b = 1; b < offsets.size(); ++b)
        longest_block = std::max(longest_block, offsets[b] - offsets[b - 1]);
    }
    const auto alias = in_place_alias(plan_.kind, plan_.num_ranks, plan_.root, rank);
    memory.alias_shift = (alias.output_block - alias.input_block) * plan_.chunks_per_block;
  }
  // Cells of scratch have a fixed address each, with room for the longest: if they were packed, cells of chunks that
  // use the same slot in turn would overlap by an element, and waits are counted by cells.
  constexpr std::int64_t kLine = 64;
  const std::int64_t parts = static_cast<std::int64_t>(plan_.chunks_per_block) * segments_;
  const std::int64_t longest_cell = (longest_block + parts - 1) / parts;
  scratch_cell_bytes_ = (longest_cell * element_bytes_ + kLine - 1) / kLine * kLine;
}

void CellMemory::fill_contents(RankMemory& memory) const {
  const auto fill = [this](const std::vector<std::int64_t>& offsets, std::vector<Content>& contents) {
    for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
      for (int c = 0; c < plan_.chunks_per_block; ++c) contents.push_back({offsets[b + 1] - offsets[b], c, 1});
    }
  };
  fill(memory.offsets[0], memory.input_content);
  fill(memory.offsets[1], memory.output_content);
}

Cell& CellMemory::cell(int rank, Buffer buffer, int index) {
  RankMemory& memory = ranks_[at(rank)];
  if (in_place_ && buffer == Buffer::input) {
    const int shifted = index + memory.alias_shift * segments_;
    if (shifted >= 0 && at(shifted) < memory.cells[1].size()) return memory.cells[1][at(shifted)];
  }
  return memory.cells[static_cast<std::size_t>(buffer)].at(at(index));
}

Content& CellMemory::content(int rank, Buffer buffer, int chunk) {
  RankMemory& memory = ranks_[at(rank)];
  if (buffer == Buffer::scratch) return memory.scratch_content.at(at(chunk));
  return (buffer == Buffer::input ? memory.input_content : memory.output_content).at(at(chunk));
}

RankAddress CellMemory::address(int rank, const Slice& slice, int cell_in_slice, const Content& held) const {
  const int chunk = slice.first + cell_in_slice / segments_;
  const int segment = cell_in_slice % segments_;
  const int parts = plan_.chunks_per_block * segments_;
  const std::int64_t within = chunk_begin(held.block_elems, parts, held.chunk_in_block * segments_ + segment);
  if (slice.buffer == Buffer::scratch) {
    return {rank, slice.buffer, (static_cast<std::int64_t>(chunk) * segments_ + segment) * scratch_cell_bytes_};
  }
  const auto& offsets = ranks_[at(rank)].offsets[static_cast<std::size_t>(slice.buffer)];
  return {rank, slice.buffer, (offsets.at(at(chunk / plan_.chunks_per_block)) + within) * element_bytes_};
}

std::int64_t CellMemory::elems(const std::vector<Content>& contents, CellRange cells) const {
  const int parts = plan_.chunks_per_block * segments_;
  std::int64_t total = 0;
  for (int i = cells.begin; i < cells.end; ++i) {
    const Content& held = contents.at(at(i / segments_));
    const int part = held.chunk_in_block * segments_ + i % segments_;
    total += chunk_begin(held.block_elems, parts, part + 1) - chunk_begin(held.block_elems, parts, part);
  }
  return total;
}

std::int64_t CellMemory::scratch_bytes() const {
  return static_cast<std::int64_t>(plan_.scratch_chunks) * segments_ * scratch_cell_bytes_;
}

}  // namespace lockstep::plan
