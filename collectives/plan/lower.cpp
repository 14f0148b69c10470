#include "collectives/plan/program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "collectives/plan/lower_parts.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

using collectives::Operation;

// A send as it was issued.
struct IssuedSend {
  std::vector<Ref> writers;       // [cell of the slice]
  std::vector<Ref> landed;        // [cell of the slice]
  std::vector<Ref> readers;       // [cell of the slice]
  std::vector<Content> contents;  // [chunk of the slice]
};

// One source of a pass.
struct PassSource {
  int rank;
  Slice slice;
  const IssuedSend* message;  // set if another rank's
  std::vector<Content> contents;
};

void add_wait(Draft& draft, const Ref& ref) {
  if (ref.rank < 0) return;  // initial content
  draft.waits.push_back({ref.rank, ref.lane, static_cast<std::uint32_t>(ref.instruction) + 1});
}

class Lowering {
 public:
  Lowering(const Plan& plan, const Operation& operation, const LowerOptions& options)
      : plan_(plan),
        segments_(options.segments),
        push_(options.push),
        ids_(plan),
        messages_(match_messages(plan, ids_)),
        grouping_(group_steps(plan, ids_, messages_, options.segments, options.fuse)),
        memory_(plan, operation, options.segments),
        sent_(at(ids_.num_steps())),
        issued_(at(ids_.num_steps()), false),
        drafts_(at(ids_.num_lanes())) {
    LOCKSTEP_CHECK(options.segments >= 1, "at least one segment");
    for (const Message& message : messages_.list) {
      LOCKSTEP_CHECK(message.send >= 0 && message.recv >= 0, "a message without a partner: the plan was not checked");
    }
    for (int lane = 0; lane < ids_.num_lanes(); ++lane) next_.push_back(ids_.lane_begin(lane));
  }

  Program run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int lane = 0; lane < ids_.num_lanes(); ++lane) {
        for (; ready(lane); moved = true) do_step(lane);
      }
    }
    Program program;
    program.num_ranks = plan_.num_ranks;
    program.num_lanes = num_lanes(plan_);
    program.scratch_bytes = memory_.scratch_bytes();
    program.ranks.resize(plan_.ranks.size());
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      RankProgram& out = program.ranks[at(rank)];
      out.lanes.resize(at(program.num_lanes));
      for (int l = 0; l < ids_.lanes_of(rank); ++l) {
        const int lane = ids_.lane_id(rank, l);
        LOCKSTEP_CHECK(next_[at(lane)] == ids_.lane_end(lane), "the plan was not checked");
        out.lanes[at(l)] = flatten(drafts_[at(lane)], rank, l);
      }
      out.exit_waits = exit_waits(rank);
    }
    mark_awaited(program);
    return program;
  }

 private:
  const Group& group_of(int id) const { return grouping_.groups[at(grouping_.of_step[at(id)])]; }
  bool ready(int lane) const {
    const int id = next_[at(lane)];
    if (id == ids_.lane_end(lane)) return false;
    const StepIndex& where = ids_.index(id);
    const Step& step = step_at(plan_, where);
    for (const After& after : step.after) {
      if (!issued_[at(ids_.id(where.rank, after))]) return false;
    }
    return !reads_peer(step.op) || issued_[at(messages_.send_of(id))];
  }

  void do_step(int lane) {
    const int id = next_[at(lane)]++;
    issued_[at(id)] = true;
    if (step_at(plan_, ids_.index(id)).op == Op::send) return issue(id);
    if (group_of(id).steps.back() == id) do_group(group_of(id));
  }

  // A send notes the writers of the data that it sends, and adds its receiver to the readers.
  void issue(int send) {
    const int rank = ids_.index(send).rank;
    const Step& step = step_at(plan_, ids_.index(send));
    const StepIndex& receive = ids_.index(messages_.receive_of(send));
    const Group& group = group_of(messages_.receive_of(send));
    IssuedSend& message = sent_[at(send)];
    for (int i = 0; i < step.src.count * segments_; ++i) {
      Cell& read = memory_.cell(rank, step.src.buffer, step.src.first * segments_ + i);
      message.writers.push_back(read.writer);
      message.landed.push_back(read.landed);
      message.readers.push_back({receive.rank, receive.lane, instruction_of_cell(group, i)});
      read.readers.push_back(message.readers.back());
    }
    for (int c = 0; c < step.src.count; ++c) {
      message.contents.push_back(memory_.content(rank, step.src.buffer, step.src.first + c));
    }
  }

  void do_group(const Group& group) {
    const std::vector<PassSource> operands = operands_of(group);
    for (int piece = 0; piece < group.num_instructions; ++piece) draft_piece(group, operands, piece);
    for (int c = 0; c < group.destination.count; ++c) {
      Content sum = operands.front().contents[at(c)];
      sum.terms = 0;
      for (const PassSource& operand : operands) sum.terms += operand.contents[at(c)].terms;
      memory_.content(ids_.index(group.steps.front()).rank, group.destination.buffer, group.destination.first + c) =
          sum;
    }
  }

  std::vector<PassSource> operands_of(const Group& group) {
    std::vector<PassSource> operands;
    const int rank = ids_.index(group.steps.front()).rank;
    const auto add_local = [&](const Slice& slice) {
      PassSource operand{rank, slice, nullptr, {}};
      for (int c = 0; c < slice.count; ++c)
        operand.contents.push_back(memory_.content(rank, slice.buffer, slice.first + c));
      operands.push_back(std::move(operand));
    };
    for (const int id : group.steps) {
      const Step& step = step_at(plan_, ids_.index(id));
      const bool first = id == group.steps.front();
      if (first && step.op == Op::recv_reduce) add_local(step.src);
      if (first && step.op == Op::reduce) add_local(step.dst);
      if (step.op == Op::copy || step.op == Op::reduce) add_local(step.src);
      if (!reads_peer(step.op)) continue;
      const int send = messages_.send_of(id);
      const StepIndex& sender = ids_.index(send);
      operands.push_back({sender.rank, step_at(plan_, sender).src, &sent_[at(send)], sent_[at(send)].contents});
    }
    return operands;
  }

  void draft_piece(const Group& group, const std::vector<PassSource>& operands, int piece) {
    const CellRange cells = piece_cells(group, piece);
    const auto [rank, lane, step] = ids_.index(group.steps.front());
    const Ref self{rank, lane, group.first_instruction + piece};
    const bool plain_receive = operands.size() == 1 && operands.front().message != nullptr;
    if (push_ && plain_receive && push_piece(self, group, operands.front(), piece)) return;

    Draft draft;
    draft.count = memory_.elems(operands.front().contents, cells);
    int terms = 0;
    for (const PassSource& operand : operands) {
      terms += operand.contents[at(cells.begin / segments_)].terms;
      draft.sources.push_back(source_address(operand, cells));
      if (operand.message != nullptr) draft.waits.push_back({operand.rank, 0, 0});
      for (int i = cells.begin; i < cells.end; ++i) {
        if (operand.message != nullptr) {
          add_wait(draft, operand.message->writers[at(i)]);
          continue;
        }
        Cell& read = memory_.cell(rank, operand.slice.buffer, operand.slice.first * segments_ + i);
        add_wait(draft, read.writer);
        read.readers.push_back(self);
      }
    }
    const Content& content = operands.front().contents[at(cells.begin / segments_)];
    draft.destinations.push_back(memory_.address(rank, group.destination, cells.begin, content));
    add_hazards(self, self, rank, group, cells, draft);
    draft.completes =
        collectives::has_op(plan_.kind) && terms == plan_.num_ranks && (operands.size() > 1 || plan_.num_ranks == 1);
    drafts_of(self).push_back(std::move(draft));
  }

  // If the sender produced a piece in one pass, and a plain copy receives it, that same pass stores it here: this saves
  // reading it again. The pass must be the sender's own, so that messages stay on their links.
  bool push_piece(const Ref& self, const Group& group, const PassSource& operand, int piece) {
    const CellRange cells = piece_cells(group, piece);
    const Ref maker = operand.message->writers[at(cells.begin)];
    if (maker.rank != operand.rank || maker.rank == self.rank) return false;
    const auto first = operand.message->writers.begin();
    if (!std::all_of(first + cells.begin, first + cells.end, [&](const Ref& w) { return w == maker; })) return false;
    Draft& source_draft = draft_of(maker);
    const RankAddress source = source_address(operand, cells);
    const bool same_piece = !source_draft.pushed && source_draft.count == memory_.elems(operand.contents, cells) &&
                            source_draft.destinations.front().buffer == source.buffer &&
                            source_draft.destinations.front().offset_bytes == source.offset_bytes;
    if (!same_piece || used_later_in_lane(maker, self.rank, group, cells)) return false;

    Draft draft;
    draft.pushed = true;
    draft.count = source_draft.count;
    draft.sources.push_back(source);  // the message, for emulated links
    add_wait(draft, maker);
    source_draft.waits.push_back({self.rank, 0, 0});
    source_draft.destinations.push_back(
        memory_.address(self.rank, group.destination, cells.begin, operand.contents[at(cells.begin / segments_)]));
    for (int i = cells.begin; i < cells.end; ++i) {
      std::erase(memory_.cell(operand.rank, operand.slice.buffer, operand.slice.first * segments_ + i).readers, self);
    }
    add_hazards(maker, self, self.rank, group, cells, source_draft);
    drafts_of(self).push_back(std::move(draft));
    return true;
  }

  // True if a later instruction of `maker`'s own lane has read or written the cells that it would write: waits cannot
  // order the two.
  bool used_later_in_lane(const Ref& maker, int rank, const Group& group, CellRange cells) {
    const auto is_later = [&](const Ref& ref) {
      return ref.rank == maker.rank && ref.lane == maker.lane && ref.instruction > maker.instruction;
    };
    for (int i = cells.begin; i < cells.end; ++i) {
      const Cell& used = memory_.cell(rank, group.destination.buffer, group.destination.first * segments_ + i);
      if (is_later(used.writer) || std::any_of(used.readers.begin(), used.readers.end(), is_later)) return true;
    }
    return false;
  }

  // `writer`, whose draft this is, is about to write a rank's cells: it waits for their writers and remaining readers,
  // and becomes their writer; others may read them once `landed` is done.
  void add_hazards(const Ref& writer, const Ref& landed, int rank, const Group& group, CellRange cells, Draft& draft) {
    for (int i = cells.begin; i < cells.end; ++i) {
      Cell& written = memory_.cell(rank, group.destination.buffer, group.destination.first * segments_ + i);
      if (written.writer != writer) add_wait(draft, written.writer);
      for (const Ref& reader : written.readers) {
        if (reader != writer) add_wait(draft, reader);
      }
      written.writer = writer;
      written.landed = landed;
      written.readers.clear();
    }
  }

  RankAddress source_address(const PassSource& operand, CellRange cells) const {
    RankAddress source =
        memory_.address(operand.rank, operand.slice, cells.begin, operand.contents[at(cells.begin / segments_)]);
    for (int i = cells.begin; operand.message != nullptr && i < cells.end; ++i) {
      const Ref& landed = operand.message->landed[at(i)];
      if (landed.rank < 0) continue;
      source.lane = landed.lane;
      source.instructions = static_cast<std::uint32_t>(landed.instruction) + 1;
    }
    return source;
  }

  std::vector<Draft>& drafts_of(const Ref& ref) { return drafts_[at(ids_.lane_id(ref.rank, ref.lane))]; }
  Draft& draft_of(const Ref& ref) { return drafts_of(ref)[at(ref.instruction)]; }
  // Waits until no rank reads this rank's input and output any more: the last reader in each lane of the others.
  std::vector<Wait> exit_waits(int rank) {
    std::map<std::pair<int, int>, std::uint32_t> last;
    const int begin = ids_.lane_begin(ids_.lane_id(rank, 0));
    const int end = ids_.lane_begin(ids_.lane_id(rank + 1, 0));
    for (int id = begin; id < end; ++id) {
      const Step& step = step_at(plan_, ids_.index(id));
      if (step.op != Op::send || step.src.buffer == Buffer::scratch) continue;
      for (const Ref& reader : sent_[at(id)].readers) {
        if (reader.rank == rank || draft_of(reader).pushed) continue;
        auto& instructions = last[{reader.rank, reader.lane}];
        instructions = std::max(instructions, static_cast<std::uint32_t>(reader.instruction) + 1);
      }
    }
    std::vector<Wait> waits;
    for (const auto& [lane, instructions] : last) waits.push_back({lane.first, lane.second, instructions});
    return waits;
  }

  const Plan& plan_;
  const int segments_;
  const bool push_;
  const StepIds ids_;
  const Messages messages_;
  const Grouping grouping_;
  CellMemory memory_;
  std::vector<int> next_;                   // [lane id] step id
  std::vector<IssuedSend> sent_;            // [step id]
  std::vector<bool> issued_;                // [step id] sends done, and steps done
  std::vector<std::vector<Draft>> drafts_;  // [lane id][instruction]
};

}  // namespace

Program lower(const Plan& plan, const Operation& operation, const LowerOptions& options) {
  return Lowering(plan, operation, options).run();
}

}  // namespace lockstep::plan
