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
  friend bool operator==(const Ref&, const Ref&) = default;
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
  std::vector<Ref> readers;       // [cell of the slice]
  std::vector<Content> contents;  // [chunk of the slice]
};

// An instruction while it is still growing: the program keeps the same in flat arrays.
struct Draft {
  std::vector<Wait> waits;
  std::vector<Place> sources;
  std::vector<Place> destinations;
  std::int64_t count = 0;
  bool completes = false;
  bool pushed = false;  // somebody else writes the destination; what is left is the wait for it
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
        push_(options.push),
        element_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
        partners_(match_channels(plan)),
        grouping_(group_steps(plan, partners_, options.segments, options.fuse)) {
    LOCKSTEP_CHECK(options.segments >= 1, "at least one segment");
    make_memory();
  }

  Program run();

 private:
  void make_memory();
  void fill_contents(RankMemory& memory);
  bool ready(int rank, int lane) const;
  void do_step(int rank, int lane);
  void issue(const StepPlace& send);
  void do_group(int rank, int lane, const Group& group);
  std::vector<Operand> operands_of(int rank, int lane, const Group& group);
  void draft_piece(int rank, int lane, const Group& group, const std::vector<Operand>& operands, int piece);
  bool push_piece(const Ref& self, const Group& group, const Operand& operand, int piece);
  bool used_later_in_lane(const Ref& maker, int rank, const Group& group, CellRange cells);
  void add_hazards(const Ref& writer, int rank, const Group& group, CellRange cells, Draft& draft);
  Place source_place(const Operand& operand, CellRange cells) const;
  Draft& draft_of(const Ref& ref) { return drafts_[at(ref.rank)][at(ref.lane)][at(ref.instruction)]; }
  std::vector<Wait> exit_waits(int rank);

  Cell& cell(int rank, Buffer buffer, int index);
  Content& content(int rank, Buffer buffer, int chunk);
  Place place(int rank, const Slice& slice, int cell_in_slice, const Content& content) const;
  std::int64_t elems(const std::vector<Content>& contents, CellRange cells) const;

  const Plan& plan_;
  const Operation& operation_;
  const int segments_;
  const bool push_;
  const std::int64_t element_bytes_;
  const Partners partners_;
  const Grouping grouping_;
  std::int64_t scratch_cell_bytes_ = 0;
  std::vector<RankMemory> memory_;
  std::vector<std::vector<int>> next_;                       // [rank][lane] step
  std::vector<std::vector<std::vector<Message>>> messages_;  // [rank][lane][step]
  std::vector<std::vector<std::vector<bool>>> issued_;       // [rank][lane][step] sends done, and steps done
  std::vector<std::vector<std::vector<Draft>>> drafts_;      // [rank][lane][instruction]
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
    fill_contents(memory);
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
    drafts_.emplace_back(plan_.ranks[at(rank)].lanes.size());
  }
  // Cells of scratch have a fixed place each, with room for the longest: were they packed, cells of chunks that lie in
  // the same slot one after the other would overlap by an element, and waits are counted by cells.
  constexpr std::int64_t kLine = 64;
  const std::int64_t parts = static_cast<std::int64_t>(plan_.chunks_per_block) * segments_;
  const std::int64_t longest_cell = (longest_block + parts - 1) / parts;
  scratch_cell_bytes_ = (longest_cell * element_bytes_ + kLine - 1) / kLine * kLine;
}

void Lowering::fill_contents(RankMemory& memory) {
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
  const StepPlace& send = partners_[at(rank)][at(lane)][at(i)];
  return issued_[at(send.rank)][at(send.lane)][at(send.step)];
}

// A send takes note of who wrote what it sends, and puts its receiver down as a reader.
void Lowering::issue(const StepPlace& send) {
  const Step& step = plan_.ranks[at(send.rank)].lanes[at(send.lane)][at(send.step)];
  const StepPlace& receive = partners_[at(send.rank)][at(send.lane)][at(send.step)];
  const LaneGroups& groups = grouping_[at(receive.rank)][at(receive.lane)];
  const Group& group = groups.groups[at(groups.group_of_step[at(receive.step)])];
  Message& message = messages_[at(send.rank)][at(send.lane)][at(send.step)];
  for (int i = 0; i < step.src.count * segments_; ++i) {
    Cell& read = cell(send.rank, step.src.buffer, step.src.first * segments_ + i);
    message.writers.push_back(read.writer);
    message.readers.push_back({receive.rank, receive.lane, instruction_of_cell(group, i)});
    read.readers.push_back(message.readers.back());
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
    const StepPlace& send = partners_[at(rank)][at(lane)][at(index)];
    const Message& message = messages_[at(send.rank)][at(send.lane)][at(send.step)];
    const Slice& slice = plan_.ranks[at(send.rank)].lanes[at(send.lane)][at(send.step)].src;
    operands.push_back({send.rank, slice, &message, message.contents});
  }
  return operands;
}

Place Lowering::source_place(const Operand& operand, CellRange cells) const {
  Place source = place(operand.rank, operand.slice, cells.begin, operand.contents[at(cells.begin / segments_)]);
  for (int i = cells.begin; operand.message != nullptr && i < cells.end; ++i) {
    const Ref& writer = operand.message->writers[at(i)];
    if (writer.rank < 0) continue;
    source.lane = writer.lane;
    source.instructions = static_cast<std::uint32_t>(writer.instruction) + 1;
  }
  return source;
}

void add_wait(Draft& draft, const Ref& ref) {
  if (ref.rank < 0) return;  // as it was at the start
  draft.waits.push_back({ref.rank, ref.lane, static_cast<std::uint32_t>(ref.instruction) + 1});
}

// `writer`, whose draft this is, is about to write a rank's cells: it waits for whoever wrote or still reads them, and
// becomes their writer.
void Lowering::add_hazards(const Ref& writer, int rank, const Group& group, CellRange cells, Draft& draft) {
  for (int i = cells.begin; i < cells.end; ++i) {
    Cell& written = cell(rank, group.destination.buffer, group.destination.first * segments_ + i);
    if (written.writer != writer) add_wait(draft, written.writer);
    for (const Ref& reader : written.readers) {
      if (reader != writer) add_wait(draft, reader);
    }
    written.writer = writer;
    written.readers.clear();
  }
}

// Whether a later instruction of `maker`'s own lane has read or written the cells that it would write: waits cannot put
// the two in order.
bool Lowering::used_later_in_lane(const Ref& maker, int rank, const Group& group, CellRange cells) {
  const auto is_later = [&](const Ref& ref) {
    return ref.rank == maker.rank && ref.lane == maker.lane && ref.instruction > maker.instruction;
  };
  for (int i = cells.begin; i < cells.end; ++i) {
    const Cell& used = cell(rank, group.destination.buffer, group.destination.first * segments_ + i);
    if (is_later(used.writer) || std::any_of(used.readers.begin(), used.readers.end(), is_later)) return true;
  }
  return false;
}

// A piece that the sender made in one pass, and that is received by a plain copy, is stored here by that very pass:
// it saves reading it again. Messages keep to their links, as the pass must be the sender's own.
bool Lowering::push_piece(const Ref& self, const Group& group, const Operand& operand, int piece) {
  const CellRange cells = piece_cells(group, piece);
  const Ref maker = operand.message->writers[at(cells.begin)];
  if (maker.rank != operand.rank || maker.rank == self.rank) return false;
  const auto first = operand.message->writers.begin();
  if (!std::all_of(first + cells.begin, first + cells.end, [&](const Ref& w) { return w == maker; })) return false;
  Draft& made = draft_of(maker);
  const Place source = source_place(operand, cells);
  const bool same_piece = !made.pushed && made.count == elems(operand.contents, cells) &&
                          made.destinations.front().buffer == source.buffer &&
                          made.destinations.front().offset_bytes == source.offset_bytes;
  if (!same_piece || used_later_in_lane(maker, self.rank, group, cells)) return false;

  Draft draft;
  draft.pushed = true;
  draft.count = made.count;
  draft.sources.push_back(source);  // what travels, for emulated links
  add_wait(draft, maker);
  made.waits.push_back({self.rank, 0, 0});
  made.destinations.push_back(
      place(self.rank, group.destination, cells.begin, operand.contents[at(cells.begin / segments_)]));
  for (int i = cells.begin; i < cells.end; ++i) {
    std::erase(cell(operand.rank, operand.slice.buffer, operand.slice.first * segments_ + i).readers, self);
  }
  add_hazards(maker, self.rank, group, cells, made);
  drafts_[at(self.rank)][at(self.lane)].push_back(std::move(draft));
  return true;
}

void Lowering::draft_piece(int rank, int lane, const Group& group, const std::vector<Operand>& operands, int piece) {
  const CellRange cells = piece_cells(group, piece);
  const Ref self{rank, lane, group.first_instruction + piece};
  const bool plain_receive = operands.size() == 1 && operands.front().message != nullptr;
  if (push_ && plain_receive && push_piece(self, group, operands.front(), piece)) return;

  Draft draft;
  draft.count = elems(operands.front().contents, cells);
  int terms = 0;
  for (const Operand& operand : operands) {
    terms += operand.contents[at(cells.begin / segments_)].terms;
    draft.sources.push_back(source_place(operand, cells));
    if (operand.message != nullptr) draft.waits.push_back({operand.rank, 0, 0});
    for (int i = cells.begin; i < cells.end; ++i) {
      if (operand.message != nullptr) {
        add_wait(draft, operand.message->writers[at(i)]);
        continue;
      }
      Cell& read = cell(rank, operand.slice.buffer, operand.slice.first * segments_ + i);
      add_wait(draft, read.writer);
      read.readers.push_back(self);
    }
  }
  const Content& made = operands.front().contents[at(cells.begin / segments_)];
  draft.destinations.push_back(place(rank, group.destination, cells.begin, made));
  add_hazards(self, rank, group, cells, draft);
  draft.completes =
      collectives::has_op(plan_.kind) && terms == plan_.num_ranks && (operands.size() > 1 || plan_.num_ranks == 1);
  drafts_[at(rank)][at(lane)].push_back(std::move(draft));
}

void Lowering::do_group(int rank, int lane, const Group& group) {
  const std::vector<Operand> operands = operands_of(rank, lane, group);
  for (int piece = 0; piece < group.num_instructions; ++piece) draft_piece(rank, lane, group, operands, piece);
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

// Until nobody reads this rank's input and output any more: the last reader in each lane of the others.
std::vector<Wait> Lowering::exit_waits(int rank) {
  std::map<std::pair<int, int>, std::uint32_t> last;
  const auto& lanes = plan_.ranks[at(rank)].lanes;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    for (std::size_t i = 0; i < lanes[l].size(); ++i) {
      if (lanes[l][i].op != Op::send || lanes[l][i].src.buffer == Buffer::scratch) continue;
      for (const Ref& reader : messages_[at(rank)][l][i].readers) {
        if (reader.rank == rank || draft_of(reader).pushed) continue;
        auto& instructions = last[{reader.rank, reader.lane}];
        instructions = std::max(instructions, static_cast<std::uint32_t>(reader.instruction) + 1);
      }
    }
  }
  std::vector<Wait> waits;
  for (const auto& [lane, instructions] : last) waits.push_back({lane.first, lane.second, instructions});
  return waits;
}

// The waits that say something new after those of earlier instructions of the lane, the strongest of each other lane.
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

// Puts down at every instruction whether anybody waits for it: a gate that nobody waits for need not be opened.
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

Program Lowering::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      const int lanes = static_cast<int>(plan_.ranks[at(rank)].lanes.size());
      for (int lane = 0; lane < lanes; ++lane) {
        for (; ready(rank, lane); moved = true) do_step(rank, lane);
      }
    }
  }
  Program program;
  program.num_ranks = plan_.num_ranks;
  program.num_lanes = num_lanes(plan_);
  program.scratch_bytes = static_cast<std::int64_t>(plan_.scratch_chunks) * segments_ * scratch_cell_bytes_;
  program.ranks.resize(plan_.ranks.size());
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    RankProgram& out = program.ranks[at(rank)];
    out.lanes.resize(at(program.num_lanes));
    for (std::size_t l = 0; l < next_[at(rank)].size(); ++l) {
      LOCKSTEP_CHECK(at(next_[at(rank)][l]) == plan_.ranks[at(rank)].lanes[l].size(), "the plan was not checked");
      out.lanes[l] = flatten(drafts_[at(rank)][l], rank, static_cast<int>(l));
    }
    out.exit_waits = exit_waits(rank);
  }
  mark_awaited(program);
  return program;
}

}  // namespace

Program lower(const Plan& plan, const Operation& operation, const LowerOptions& options) {
  return Lowering(plan, operation, options).run();
}

}  // namespace lockstep::plan
