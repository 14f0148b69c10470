#include "collectives/plan/lower.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "collectives/plan/chunk_range.h"
#include "collectives/plan/dataflow.h"
#include "core/error.h"

namespace lockstep::plan {
namespace {

using collectives::Operation;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// An instruction of the program to be.
struct Ref {
  int rank = -1;
  int lane = -1;
  int instruction = -1;
};

// A segment of a chunk in one rank's memory.
struct Cell {
  Ref writer;                // rank -1: as it was at the start
  std::vector<Ref> readers;  // since it was written
};

// What a chunk holds: which piece of which block (that gives its size), and how many ranks have contributed.
struct Content {
  std::int64_t block_elems = 0;
  int chunk_in_block = 0;
  int terms = 1;
};

// A send as it was issued.
struct Message {
  std::vector<Ref> writers;       // [cell of the slice]
  std::vector<Content> contents;  // [chunk of the slice]
};

// One source of a pass.
struct Operand {
  int rank;
  Slice slice;
  const Message* message;  // if another rank's
  std::vector<Content> contents;
};

struct RankMemory {
  std::array<std::vector<Cell>, 3> cells;            // [buffer][chunk * segments + segment]
  std::vector<Content> input_content;                // [chunk]
  std::vector<Content> output_content;               // [chunk]
  std::vector<Content> scratch_content;              // [slot]
  std::array<std::vector<std::int64_t>, 2> offsets;  // blocks of input and output, elements
  int alias_shift = 0;                               // in place: input chunk c is output chunk c + shift
};

class Lowering {
 public:
  Lowering(const Plan& plan, const Operation& operation, const LowerOptions& options)
      : plan_(plan),
        operation_(operation),
        segments_(options.segments),
        element_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
        partners_(match_channels(plan)),
        grouping_(group_steps(plan, partners_, options.segments, options.fuse)) {
    LOCKSTEP_CHECK(options.segments >= 1, "at least one segment");
    make_memory();
  }

  Program run();

 private:
  void make_memory();
  void fill_contents(RankMemory& memory, int rank);
  bool ready(int rank, int lane) const;
  void do_step(int rank, int lane);
  void issue(const StepRef& send);
  void do_group(int rank, int lane, const Group& group);
  std::vector<Operand> operands_of(int rank, int lane, const Group& group);
  void emit_piece(int rank, int lane, const Group& group, const std::vector<Operand>& operands, int piece);
  void emit_waits(int rank, int lane, LaneProgram& out, std::vector<Wait> waits);

  Cell& cell(int rank, Buffer buffer, int index);
  Content& content(int rank, Buffer buffer, int chunk);
  Place place(int rank, const Slice& slice, int cell_in_slice, const Content& content) const;
  std::int64_t elems(const std::vector<Content>& contents, CellRange cells) const;

  const Plan& plan_;
  const Operation& operation_;
  const int segments_;
  const std::int64_t element_bytes_;
  const Partners partners_;
  const Grouping grouping_;
  std::int64_t scratch_cell_bytes_ = 0;
  std::vector<RankMemory> memory_;
  std::vector<std::vector<int>> next_;                       // [rank][lane] step
  std::vector<std::vector<std::vector<Message>>> messages_;  // [rank][lane][step]
  std::vector<std::vector<std::vector<bool>>> issued_;       // [rank][lane][step] sends done, and steps done
  std::vector<std::vector<std::map<std::pair<int, int>, std::uint32_t>>> known_;  // [rank][lane] waited for already
  std::vector<std::map<std::pair<int, int>, std::uint32_t>> leave_;               // [rank] exit waits
  Program program_;
};

void Lowering::make_memory() {
  memory_.resize(plan_.ranks.size());
  std::int64_t longest_block = 0;
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    RankMemory& memory = memory_[at(rank)];
    memory.offsets = {input_offsets(operation_, plan_.num_ranks, rank),
                      output_offsets(operation_, plan_.num_ranks, rank)};
    const std::array<int, 3> chunks{input_chunks(plan_, rank), output_chunks(plan_, rank), plan_.scratch_chunks};
    for (std::size_t b = 0; b < 3; ++b) memory.cells[b].resize(at(chunks[b] * segments_));
    memory.scratch_content.resize(at(plan_.scratch_chunks));
    fill_contents(memory, rank);
    for (const auto& offsets : memory.offsets) {
      for (std::size_t b = 1; b < offsets.size(); ++b)
        longest_block = std::max(longest_block, offsets[b] - offsets[b - 1]);
    }
    const auto alias = in_place_alias(plan_.kind, plan_.num_ranks, plan_.root, rank);
    memory.alias_shift = (alias.output_block - alias.input_block) * plan_.chunks_per_block;
    next_.emplace_back(plan_.ranks[at(rank)].lanes.size(), 0);
    messages_.emplace_back();
    issued_.emplace_back();
    for (const Lane& lane : plan_.ranks[at(rank)].lanes) {
      messages_.back().emplace_back(lane.size());
      issued_.back().emplace_back(lane.size(), false);
    }
    known_.emplace_back(plan_.ranks[at(rank)].lanes.size());
  }
  leave_.resize(plan_.ranks.size());
  // Cells of scratch have a fixed place each, with room for the longest: were they packed, cells of chunks that lie in
  // the same slot one after the other would overlap by an element, and waits are counted by cells.
  constexpr std::int64_t kLine = 64;
  const std::int64_t parts = static_cast<std::int64_t>(plan_.chunks_per_block) * segments_;
  const std::int64_t longest_cell = (longest_block + parts - 1) / parts;
  scratch_cell_bytes_ = (longest_cell * element_bytes_ + kLine - 1) / kLine * kLine;
}

void Lowering::fill_contents(RankMemory& memory, int /*rank*/) {
  const auto fill = [this](const std::vector<std::int64_t>& offsets, std::vector<Content>& contents) {
    for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
      for (int c = 0; c < plan_.chunks_per_block; ++c) contents.push_back({offsets[b + 1] - offsets[b], c, 1});
    }
  };
  fill(memory.offsets[0], memory.input_content);
  fill(memory.offsets[1], memory.output_content);
}

// In place, an input cell that is an output cell too is that one.
Cell& Lowering::cell(int rank, Buffer buffer, int index) {
  RankMemory& memory = memory_[at(rank)];
  if (operation_.in_place && buffer == Buffer::input) {
    const int shifted = index + memory.alias_shift * segments_;
    if (shifted >= 0 && at(shifted) < memory.cells[1].size()) return memory.cells[1][at(shifted)];
  }
  return memory.cells[static_cast<std::size_t>(buffer)].at(at(index));
}

Content& Lowering::content(int rank, Buffer buffer, int chunk) {
  RankMemory& memory = memory_[at(rank)];
  if (buffer == Buffer::scratch) return memory.scratch_content.at(at(chunk));
  return (buffer == Buffer::input ? memory.input_content : memory.output_content).at(at(chunk));
}

Place Lowering::place(int rank, const Slice& slice, int cell_in_slice, const Content& held) const {
  const int chunk = slice.first + cell_in_slice / segments_;
  const int segment = cell_in_slice % segments_;
  const int parts = plan_.chunks_per_block * segments_;
  const std::int64_t within = chunk_begin(held.block_elems, parts, held.chunk_in_block * segments_ + segment);
  if (slice.buffer == Buffer::scratch) {
    return {rank, slice.buffer, (static_cast<std::int64_t>(chunk) * segments_ + segment) * scratch_cell_bytes_};
  }
  const auto& offsets = memory_[at(rank)].offsets[static_cast<std::size_t>(slice.buffer)];
  return {rank, slice.buffer, (offsets.at(at(chunk / plan_.chunks_per_block)) + within) * element_bytes_};
}

std::int64_t Lowering::elems(const std::vector<Content>& contents, CellRange cells) const {
  const int parts = plan_.chunks_per_block * segments_;
  std::int64_t total = 0;
  for (int i = cells.begin; i < cells.end; ++i) {
    const Content& held = contents.at(at(i / segments_));
    const int part = held.chunk_in_block * segments_ + i % segments_;
    total += chunk_begin(held.block_elems, parts, part + 1) - chunk_begin(held.block_elems, parts, part);
  }
  return total;
}

bool Lowering::ready(int rank, int lane) const {
  const Lane& steps = plan_.ranks[at(rank)].lanes[at(lane)];
  const int i = next_[at(rank)][at(lane)];
  if (at(i) >= steps.size()) return false;
  const Step& step = steps[at(i)];
  if (step.after.lane >= 0 && !issued_[at(rank)][at(step.after.lane)][at(step.after.step)]) return false;
  if (!reads_peer(step.op)) return true;
  const StepRef& send = partners_[at(rank)][at(lane)][at(i)];
  return issued_[at(send.rank)][at(send.lane)][at(send.step)];
}

// A send takes note of who wrote what it sends, and puts its receiver down as a reader.
void Lowering::issue(const StepRef& send) {
  const Step& step = plan_.ranks[at(send.rank)].lanes[at(send.lane)][at(send.step)];
  const StepRef& receive = partners_[at(send.rank)][at(send.lane)][at(send.step)];
  const LaneGroups& groups = grouping_[at(receive.rank)][at(receive.lane)];
  const Group& group = groups.groups[at(groups.group_of_step[at(receive.step)])];
  Message& message = messages_[at(send.rank)][at(send.lane)][at(send.step)];
  for (int i = 0; i < step.src.count * segments_; ++i) {
    Cell& read = cell(send.rank, step.src.buffer, step.src.first * segments_ + i);
    const Ref reader{receive.rank, receive.lane, instruction_of_cell(group, i)};
    message.writers.push_back(read.writer);
    read.readers.push_back(reader);
    if (step.src.buffer == Buffer::scratch) continue;
    auto& last = leave_[at(send.rank)][{reader.rank, reader.lane}];
    last = std::max(last, static_cast<std::uint32_t>(reader.instruction) + 1);
  }
  for (int c = 0; c < step.src.count; ++c) {
    message.contents.push_back(content(send.rank, step.src.buffer, step.src.first + c));
  }
}

std::vector<Operand> Lowering::operands_of(int rank, int lane, const Group& group) {
  std::vector<Operand> operands;
  const auto add_local = [&](const Slice& slice) {
    Operand operand{rank, slice, nullptr, {}};
    for (int c = 0; c < slice.count; ++c) operand.contents.push_back(content(rank, slice.buffer, slice.first + c));
    operands.push_back(std::move(operand));
  };
  for (std::size_t k = 0; k < group.steps.size(); ++k) {
    const int index = group.steps[k];
    const Step& step = plan_.ranks[at(rank)].lanes[at(lane)][at(index)];
    const bool first = k == 0;
    if (first && step.op == Op::recv_reduce) add_local(step.src);
    if (first && step.op == Op::reduce) add_local(step.dst);
    if (step.op == Op::copy || step.op == Op::reduce) add_local(step.src);
    if (!reads_peer(step.op)) continue;
    const StepRef& send = partners_[at(rank)][at(lane)][at(index)];
    const Message& message = messages_[at(send.rank)][at(send.lane)][at(send.step)];
    const Slice& slice = plan_.ranks[at(send.rank)].lanes[at(send.lane)][at(send.step)].src;
    operands.push_back({send.rank, slice, &message, message.contents});
  }
  return operands;
}

// Keeps the waits that say something new, the strongest of each lane.
void Lowering::emit_waits(int rank, int lane, LaneProgram& out, std::vector<Wait> waits) {
  auto& known = known_[at(rank)][at(lane)];
  for (const Wait& wait : waits) {
    if (wait.rank == rank && wait.lane == lane) continue;
    auto [entry, is_new] = known.try_emplace({wait.rank, wait.lane}, wait.instructions);
    if (!is_new && entry->second >= wait.instructions) continue;
    entry->second = wait.instructions;
    const auto same = [&](const Wait& w) { return w.rank == wait.rank && w.lane == wait.lane; };
    const auto begin = out.waits.begin() + out.instructions.back().first_wait;
    const auto stronger = std::find_if(begin, out.waits.end(), same);
    if (stronger != out.waits.end()) {
      stronger->instructions = wait.instructions;
    } else {
      out.waits.push_back(wait);
    }
  }
  out.instructions.back().num_waits = static_cast<std::uint32_t>(out.waits.size()) - out.instructions.back().first_wait;
}

void Lowering::emit_piece(int rank, int lane, const Group& group, const std::vector<Operand>& operands, int piece) {
  LaneProgram& out = program_.ranks[at(rank)].lanes[at(lane)];
  const CellRange cells = piece_cells(group, piece);
  const Ref self{rank, lane, group.first_instruction + piece};
  std::vector<Wait> waits;
  const auto wait_for = [&](const Ref& ref) {
    if (ref.rank >= 0) waits.push_back({ref.rank, ref.lane, static_cast<std::uint32_t>(ref.instruction) + 1});
  };
  Instruction instruction{};
  instruction.first_wait = static_cast<std::uint32_t>(out.waits.size());
  instruction.first_source = static_cast<std::uint32_t>(out.sources.size());
  instruction.first_destination = static_cast<std::uint32_t>(out.destinations.size());
  instruction.count = elems(operands.front().contents, cells);
  for (const Operand& operand : operands) {
    Place source = place(operand.rank, operand.slice, cells.begin, operand.contents[at(cells.begin / segments_)]);
    if (operand.message != nullptr) waits.push_back({operand.rank, 0, 0});
    for (int i = cells.begin; i < cells.end; ++i) {
      if (operand.message != nullptr) {
        const Ref& writer = operand.message->writers[at(i)];
        wait_for(writer);
        if (writer.rank >= 0) source.lane = writer.lane;
        if (writer.rank >= 0) source.instructions = static_cast<std::uint32_t>(writer.instruction) + 1;
      } else {
        Cell& read = cell(rank, operand.slice.buffer, operand.slice.first * segments_ + i);
        wait_for(read.writer);
        read.readers.push_back(self);
      }
    }
    out.sources.push_back(source);
  }
  const Content& made = operands.front().contents[at(cells.begin / segments_)];
  out.destinations.push_back(place(rank, group.destination, cells.begin, made));
  for (int i = cells.begin; i < cells.end; ++i) {
    Cell& written = cell(rank, group.destination.buffer, group.destination.first * segments_ + i);
    wait_for(written.writer);
    for (const Ref& reader : written.readers) wait_for(reader);
    written.writer = self;
    written.readers.clear();
  }
  int terms = 0;
  for (const Operand& operand : operands) terms += operand.contents[at(cells.begin / segments_)].terms;
  instruction.completes =
      collectives::has_op(plan_.kind) && terms == plan_.num_ranks && (operands.size() > 1 || plan_.num_ranks == 1);
  instruction.num_sources = static_cast<std::uint32_t>(operands.size());
  instruction.num_destinations = 1;
  out.instructions.push_back(instruction);
  emit_waits(rank, lane, out, std::move(waits));
}

void Lowering::do_group(int rank, int lane, const Group& group) {
  const std::vector<Operand> operands = operands_of(rank, lane, group);
  for (int piece = 0; piece < group.num_instructions; ++piece) emit_piece(rank, lane, group, operands, piece);
  for (int c = 0; c < group.destination.count; ++c) {
    Content made = operands.front().contents[at(c)];
    made.terms = 0;
    for (const Operand& operand : operands) made.terms += operand.contents[at(c)].terms;
    content(rank, group.destination.buffer, group.destination.first + c) = made;
  }
}

void Lowering::do_step(int rank, int lane) {
  const int i = next_[at(rank)][at(lane)]++;
  const Lane& steps = plan_.ranks[at(rank)].lanes[at(lane)];
  issued_[at(rank)][at(lane)][at(i)] = true;
  if (steps[at(i)].op == Op::send) return issue({rank, lane, i});
  const LaneGroups& groups = grouping_[at(rank)][at(lane)];
  const Group& group = groups.groups[at(groups.group_of_step[at(i)])];
  if (group.steps.back() == i) do_group(rank, lane, group);
}

Program Lowering::run() {
  program_.num_ranks = plan_.num_ranks;
  program_.num_lanes = num_lanes(plan_);
  program_.scratch_bytes = static_cast<std::int64_t>(plan_.scratch_chunks) * segments_ * scratch_cell_bytes_;
  program_.ranks.resize(plan_.ranks.size());
  for (auto& rank : program_.ranks) rank.lanes.resize(at(program_.num_lanes));
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      const int lanes = static_cast<int>(plan_.ranks[at(rank)].lanes.size());
      for (int lane = 0; lane < lanes; ++lane) {
        for (; ready(rank, lane); moved = true) do_step(rank, lane);
      }
    }
  }
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    for (std::size_t l = 0; l < next_[at(rank)].size(); ++l) {
      LOCKSTEP_CHECK(at(next_[at(rank)][l]) == plan_.ranks[at(rank)].lanes[l].size(), "the plan was not checked");
    }
    for (const auto& [lane, count] : leave_[at(rank)]) {
      if (lane.first != rank) program_.ranks[at(rank)].exit_waits.push_back({lane.first, lane.second, count});
    }
  }
  return std::move(program_);
}

// Copies what sends read to fresh scratch slots, the same slice once until it is written again.
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
        if (step.after.lane >= 0) step.after.step = moved.at(at(step.after.lane)).at(at(step.after.step));
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

Program lower(const Plan& plan, const Operation& operation, const LowerOptions& options) {
  return Lowering(plan, operation, options).run();
}

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
        if (step.after.lane == 0) ++step.after.step;
      }
      // Other lanes begin after the copy, which is the first step of lane 0.
      if (l > 0 && !lanes[l].empty() && lanes[l].front().after.lane < 0) lanes[l].front().after = {0, 0};
    }
    lanes[0].insert(lanes[0].begin(), Step{Op::copy, -1, input(0, chunks), scratch(first_slot, chunks), {}});
  }
  staged.scratch_chunks = first_slot + most;
  return staged;
}

}  // namespace lockstep::plan
