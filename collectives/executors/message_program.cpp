// From a plan to the message programs of its ranks.
#include "collectives/executors/message_program.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/program.h"
#include "collectives/verify.h"
#include "core/index.h"

namespace lockstep::executors {

// Finds the earlier operations that an operation has to wait for, because they access the same memory and one writes
// it.
// Operations are added in an order in which running them in sequence is right. Addresses are in any unit, of one rank.
class Hazards {
 public:
  // Operation `op` reads (writes) [begin, end): appends the operations that must be done before. May append one twice.
  void read(int op, std::int64_t begin, std::int64_t end, std::vector<int>& before) {
    const auto first = split(begin);
    const auto last = split(end);
    for (auto it = first; it != last; ++it) {
      OperationsOnCell& cell = it->second;
      if (cell.writer >= 0 && cell.writer != op) before.push_back(cell.writer);
      cell.readers.push_back(op);
    }
  }

  void write(int op, std::int64_t begin, std::int64_t end, std::vector<int>& before) {
    const auto first = split(begin);
    const auto last = split(end);
    if (first == last) return;
    for (auto it = first; it != last; ++it) {
      const OperationsOnCell& cell = it->second;
      if (cell.writer >= 0 && cell.writer != op) before.push_back(cell.writer);
      for (int reader : cell.readers) {
        if (reader != op) before.push_back(reader);
      }
    }
    first->second = {op, {}};
    cells_.erase(std::next(first), last);
  }

 private:
  struct OperationsOnCell {
    int writer = -1;
    std::vector<int> readers;  // since it was written
  };
  using OperationsByCell = std::map<std::int64_t, OperationsOnCell>;
  // Splits at `at`; returns the cell that begins there.
  OperationsByCell::iterator split(std::int64_t at) {
    const auto it = std::prev(cells_.upper_bound(at));
    return it->first == at ? it : cells_.emplace_hint(std::next(it), at, it->second);
  }

  OperationsByCell cells_{{INT64_MIN, {}}};  // by begin; each extends to the next
};

namespace {

using plan::Buffer;
using plan::Op;
using plan::Slice;
using plan::Step;

Action action_of(Op op) {
  switch (op) {
    case Op::send:
      return Action::send;
    case Op::recv:
      return Action::recv;
    case Op::recv_reduce:
      return Action::recv_reduce;
    case Op::copy:
      return Action::copy;
    case Op::reduce:
      break;
  }
  return Action::reduce;
}

// Sizes of a plan's chunks for one operation.
class Sizes {
 public:
  Sizes(const plan::Plan& plan, const collectives::Operation& operation)
      : plan_(plan),
        operation_(operation),
        ids_(plan),
        contents_(contents_of(plan, {plan::kUnbounded, operation.in_place})),
        messages_(match_messages(plan, ids_)),
        steps_of_(static_cast<std::size_t>(plan.num_ranks)) {
    for (const int id : dependence_order(plan, ids_, messages_)) steps_of_[at(ids_.index(id).rank)].push_back(id);
    for (int id = 0; id < ids_.num_steps(); ++id) {
      for (int i = 0; i < chunks_of(step(id)); ++i) slot_elems_ = std::max(slot_elems_, elems(id, i));
    }
  }

  const plan::StepIds& ids() const { return ids_; }
  const Step& step(int id) const { return step_at(plan_, ids_.index(id)); }
  // The steps of a rank in an order that its lanes and `after` edges allow. As the plan is checked, steps that access
  // the same memory have the same order in all such orders.
  const std::vector<int>& steps_of(int rank) const { return steps_of_[at(rank)]; }
  std::int64_t slot_elems() const { return slot_elems_; }  // size of a scratch slot: the largest chunk
  bool completes(int id, int i) const { return contents_.at(id, i).complete; }

  std::int64_t elems(int id, int i) const { return plan::chunk_elems(plan_, operation_, contents_.at(id, i)); }

  // Boundaries of segments in a step's chunks, laid end to end; each segment is contiguous memory on all sides, and
  // both ends of a message compute the same boundaries.
  std::vector<std::int64_t> cuts(int id) const {
    const int message = messages_.of_step[at(id)];
    const int sender = message < 0 ? id : messages_.list[at(message)].send;
    const int writer = message < 0 ? id : messages_.list[at(message)].recv;
    const bool by_chunk = apart(sender) || apart(writer) || mixed(writer);
    std::vector<std::int64_t> cuts{0};
    std::int64_t end = 0;
    for (int i = 0; i < chunks_of(step(id)); ++i) {
      end += elems(id, i);
      if (by_chunk) cuts.push_back(end);
    }
    if (!by_chunk) cuts.push_back(end);
    return cuts;
  }

 private:
  // True if a step has scratch slots that its chunks do not fill, so that they are not contiguous.
  bool apart(int id) const {
    const Step& s = step(id);
    const bool scratch = (plan::reads_src(s.op) && s.src.buffer == Buffer::scratch) ||
                         (plan::writes_dst(s.op) && s.dst.buffer == Buffer::scratch);
    for (int i = 0; scratch && i + 1 < chunks_of(s); ++i) {
      if (elems(id, i) != slot_elems_) return true;
    }
    return false;
  }

  // True if some of its chunks become complete, and others do not.
  bool mixed(int id) const {
    for (int i = 1; i < chunks_of(step(id)); ++i) {
      if (completes(id, i) != completes(id, 0)) return true;
    }
    return false;
  }

  const plan::Plan& plan_;
  const collectives::Operation& operation_;
  plan::StepIds ids_;
  plan::Contents contents_;
  plan::Messages messages_;
  std::vector<std::vector<int>> steps_of_;  // [rank]
  std::int64_t slot_elems_ = 0;
};

class ProgramWriter {
 public:
  // `copied`: [step id] true for sends from a copy.
  ProgramWriter(const plan::Plan& plan, const collectives::Operation& operation, const Sizes& sizes, int rank,
                const MessageLimits& limits, const std::vector<char>& copied)
      : plan_(plan),
        sizes_(sizes),
        rank_(rank),
        limits_(limits),
        copied_(copied),
        elem_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
        input_offsets_(collectives::input_offsets(operation, plan.num_ranks, rank)),
        output_offsets_(collectives::output_offsets(operation, plan.num_ranks, rank)) {
    // Addresses used only to find overlaps: disjoint, except for the input in place.
    address_ = {std::int64_t{1} << 56, 0, std::int64_t{1} << 57};
    if (operation.in_place) {
      const auto layout = collectives::in_place_layout(operation, plan.num_ranks, rank);
      address_[at(static_cast<int>(Buffer::input))] = layout.input_at - layout.output_at;
    }
  }

  MessageProgram write() {
    program_.recvs.resize(plan_.ranks[at(rank_)].lanes.size());
    program_.scratch_bytes = plan_.scratch_chunks * sizes_.slot_elems() * elem_bytes_;
    for (const int id : sizes_.steps_of(rank_)) add_step(id);
    for (auto& [channel, queue] : sends_) program_.sends.push_back(std::move(queue));
    take_staging_slots();
    link();
    return std::move(program_);
  }

 private:
  void add_step(int id) {
    const std::int64_t segment = std::max<std::int64_t>(1, limits_.segment_bytes / elem_bytes_);
    const std::vector<std::int64_t> cuts = sizes_.cuts(id);
    for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
      const std::int64_t elems = cuts[piece + 1] - cuts[piece];
      const std::int64_t segments = (elems + segment - 1) / segment;
      for (std::int64_t s = 0; s < segments; ++s) {
        const std::int64_t begin = cuts[piece] + plan::chunk_begin(elems, segments, s);
        const std::int64_t end = cuts[piece] + plan::chunk_begin(elems, segments, s + 1);
        add_segment(id, cuts.size() > 2 ? static_cast<int>(piece) : 0, begin, end);
      }
    }
  }

  // Adds elements [begin, end) of a step's chunks, laid end to end; `chunk` is one of the chunks that contain them.
  void add_segment(int id, int chunk, std::int64_t begin, std::int64_t end) {
    const Step& step = sizes_.step(id);
    MessageOp op;
    op.action = action_of(step.op);
    op.completes = sizes_.completes(id, chunk);
    op.step_id = id;
    op.peer = step.peer;
    op.lane = sizes_.ids().index(id).lane;
    op.bytes = (end - begin) * elem_bytes_;
    if (plan::reads_src(step.op)) op.src = place(id, step.src, begin);
    if (plan::writes_dst(step.op)) op.dst = place(id, step.dst, begin);
    if (copied_[at(id)] != 0) op.src = add_copy(op);
    add_op(op);
  }

  // Adds a private copy of the data to send.
  BufferAddress add_copy(const MessageOp& send) {
    MessageOp copy = send;
    copy.action = Action::copy;
    copy.dst = {Buffer::scratch, take_scratch(send.bytes)};
    add_op(copy);
    return copy.dst;
  }

  void add_op(const MessageOp& op) {
    const int index = static_cast<int>(program_.ops.size());
    program_.ops.push_back(op);
    program_.ops.back().waits = find_waits(index, op);
    if (op.action == Action::send) {
      sends_[{op.lane, op.peer}].push_back(index);
    } else if (is_recv(op.action)) {
      program_.recvs[at(op.lane)].push_back(index);
    } else if (program_.ops.back().waits == 0) {
      program_.first.push_back(index);
    }
  }

  int find_waits(int index, const MessageOp& op) {
    std::vector<int> before;
    const std::int64_t src = address(op.src);
    const std::int64_t dst = address(op.dst);
    if (op.action != Action::recv) hazards_.read(index, src, src + op.bytes, before);
    if (op.action != Action::send) hazards_.write(index, dst, dst + op.bytes, before);  // reduce reads it, too
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (int earlier : before) links_.emplace_back(earlier, index);
    return static_cast<int>(before.size()) + (op.action == Action::recv_reduce ? 1 : 0);
  }

  std::int64_t address(const BufferAddress& place) const {
    return address_[at(static_cast<int>(place.buffer))] + place.offset_bytes;
  }

  // Address of element `elem` of a slice's chunks, laid end to end.
  BufferAddress place(int id, const Slice& slice, std::int64_t elem) const {
    int i = 0;
    for (; i + 1 < slice.count && elem >= sizes_.elems(id, i); ++i) elem -= sizes_.elems(id, i);
    return {slice.buffer, (chunk_offset(slice.buffer, slice.first + i) + elem) * elem_bytes_};
  }

  std::int64_t chunk_offset(Buffer buffer, int chunk) const {
    if (buffer == Buffer::scratch) return chunk * sizes_.slot_elems();
    const std::vector<std::int64_t>& blocks = buffer == Buffer::input ? input_offsets_ : output_offsets_;
    const int block = chunk / plan_.chunks_per_block;
    const std::int64_t elems = blocks[at(block) + 1] - blocks[at(block)];
    return blocks[at(block)] + plan::chunk_begin(elems, plan_.chunks_per_block, chunk % plan_.chunks_per_block);
  }

  std::int64_t take_scratch(std::int64_t bytes) {
    constexpr std::int64_t kCacheLine = 64;
    const std::int64_t begin = (program_.scratch_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    program_.scratch_bytes = begin + bytes;
    return begin;
  }

  // Allocates a ring of staging slots per lane, one for each receive that may be posted.
  void take_staging_slots() {
    for (const Queue& recvs : program_.recvs) {
      std::int64_t slot_bytes = 0;
      for (int recv : recvs) {
        const MessageOp& op = program_.ops[at(recv)];
        if (op.action == Action::recv_reduce) slot_bytes = std::max(slot_bytes, op.bytes);
      }
      std::vector<std::int64_t> slots(std::min(recvs.size(), at(limits_.recv_window)));
      for (std::int64_t& slot : slots) slot = take_scratch(slot_bytes);
      for (std::size_t i = 0; i < recvs.size(); ++i) program_.ops[at(recvs[i])].staging_bytes = slots[i % slots.size()];
    }
  }

  void link() {
    std::sort(links_.begin(), links_.end());
    for (const auto& [earlier, later] : links_) {
      MessageOp& op = program_.ops[at(earlier)];
      if (op.num_next++ == 0) op.first_next = static_cast<std::uint32_t>(program_.next.size());
      program_.next.push_back(later);
    }
  }

  const plan::Plan& plan_;
  const Sizes& sizes_;
  int rank_;
  MessageLimits limits_;
  const std::vector<char>& copied_;
  std::int64_t elem_bytes_;
  std::vector<std::int64_t> input_offsets_;
  std::vector<std::int64_t> output_offsets_;
  std::array<std::int64_t, 3> address_{};  // [buffer]
  Hazards hazards_;
  std::map<std::pair<int, int>, Queue> sends_;  // by lane and peer
  std::vector<std::pair<int, int>> links_;      // (earlier, later)
  MessageProgram program_;
};

std::vector<MessageProgram> write_programs(const plan::Plan& plan, const collectives::Operation& operation,
                                           const Sizes& sizes, const MessageLimits& limits,
                                           const std::vector<char>& copied) {
  std::vector<MessageProgram> programs;
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    programs.push_back(ProgramWriter(plan, operation, sizes, rank, limits, copied).write());
  }
  return programs;
}

// [step id] sends whose memory is written later, so that another operation has to wait for them.
std::vector<char> overwritten_sends(const std::vector<MessageProgram>& programs, int num_steps) {
  std::vector<char> overwritten(at(num_steps), 0);
  for (const MessageProgram& program : programs) {
    for (const MessageOp& op : program.ops) {
      if (op.action == Action::send && op.num_next > 0) overwritten[at(op.step_id)] = 1;
    }
  }
  return overwritten;
}

}  // namespace

plan::Plan usable_plan(const plan::Plan& plan, const collectives::Operation& operation) {
  if (!operation.in_place) return plan;
  // for all_to_all_v blocks differ in size
  const bool overlap_by_chunk = operation.kind != collectives::Kind::all_to_all_v;
  if (overlap_by_chunk && check(plan, {plan::kUnbounded, true}).ok()) return plan;
  return plan::stage_input(plan);
}

std::vector<MessageProgram> make_message_programs(const plan::Plan& plan, const collectives::Operation& operation,
                                                  const MessageLimits& limits) {
  const Sizes sizes(plan, operation);
  const int num_steps = sizes.ids().num_steps();
  std::vector<MessageProgram> programs =
      write_programs(plan, operation, sizes, limits, std::vector<char>(at(num_steps), 0));
  const std::vector<char> overwritten = overwritten_sends(programs, num_steps);
  // If no operation waits for a send, the order in which the plan was checked runs to the end.
  if (std::count(overwritten.begin(), overwritten.end(), 1) == 0) return programs;
  if (!find_message_deadlock(programs, limits)) return programs;
  return write_programs(plan, operation, sizes, limits, overwritten);
}

}  // namespace lockstep::executors
