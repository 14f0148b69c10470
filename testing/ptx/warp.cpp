// A warp's lanes: which of them run next, and where they meet again.
#include <fmt/format.h>

#include <algorithm>

#include "testing/ptx/machine.h"

namespace lockstep::ptx {

Warp::Warp(Block& block, int index)
    : local(block.launch.program->local_bytes() * kLanes),
      block_(block),
      index_(index),
      id_(block.launch.machine.new_warps(block, index)),
      words_(block.launch.program->words()),
      poison_(block.launch.program->num_slots(), 0),
      stamps_(block.launch.program->num_slots(), 0),
      writes_(block.launch.program->num_slots(), 0) {
  const auto& launch = block.launch.launch;
  const cuda_stand_in::Extent at = block.index();
  const auto threads = static_cast<std::uint32_t>(launch.block.count());
  for (const Slot& slot : block.launch.program->registers()) poison_[slot.index] = kAllLanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto thread = static_cast<std::uint32_t>(index * kLanes + lane);
    if (thread >= threads) exited_ |= 1U << lane;
  }
  for (const Program::Special& special : block.launch.program->specials()) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto thread = static_cast<std::uint32_t>(index * kLanes + lane);
      const std::string& name = special.name;
      std::uint64_t value = 0;
      if (name == "%tid.x")
        value = thread % launch.block.x;
      else if (name == "%tid.y")
        value = thread / launch.block.x % launch.block.y;
      else if (name == "%tid.z")
        value = thread / launch.block.x / launch.block.y;
      else if (name == "%ntid.x")
        value = launch.block.x;
      else if (name == "%ntid.y")
        value = launch.block.y;
      else if (name == "%ntid.z")
        value = launch.block.z;
      else if (name == "%ctaid.x")
        value = at.x;
      else if (name == "%ctaid.y")
        value = at.y;
      else if (name == "%ctaid.z")
        value = at.z;
      else if (name == "%nctaid.x")
        value = launch.grid.x;
      else if (name == "%nctaid.y")
        value = launch.grid.y;
      else if (name == "%nctaid.z")
        value = launch.grid.z;
      else if (name == "%laneid")
        value = static_cast<std::uint64_t>(lane);
      else if (name == "%warpid")
        value = static_cast<std::uint64_t>(index);
      else if (name == "%nwarpid")
        value = (threads + kLanes - 1) / kLanes;
      else if (name == "%cluster_ctarank" || name == "%cluster_ctaid.x")
        value = block.rank;
      else if (name == "%cluster_nctarank" || name == "%cluster_nctaid.x")
        value = launch.cluster.count();
      else if (name == "%clusterid.x")
        value = block.number / launch.cluster.count();
      else if (name == "%smid")
        value = block.number % static_cast<std::uint64_t>(machine().options().multiprocessors);
      else if (name == "%dynamic_smem_size")
        value = launch.dynamic_shared_bytes;
      else if (name == "%total_smem_size")
        value = block.shared.size();
      else
        throw Fault(fmt::format("{}: the interpreter has no special register {}", launch.kernel, name));
      set_bits(special.slot, lane, value);
    }
  }
}

Machine& Warp::machine() const {
  return block_.launch.machine;
}

const Op& Warp::current() const {
  return block_.launch.program->ops()[static_cast<std::size_t>(current_)];
}

std::string Warp::where() const {
  const Program& program = *block_.launch.program;
  std::string text;
  for (std::uint32_t left = live(); left != 0;) {
    const int first = __builtin_ctz(left);
    const int at = pc_[static_cast<std::size_t>(first)];
    std::uint32_t together = 0;
    for_lanes(left, [&](int lane) { together |= pc_[static_cast<std::size_t>(lane)] == at ? 1U << lane : 0U; });
    const Instruction& instruction = *program.ops()[static_cast<std::size_t>(at)].text;
    text += fmt::format("{}block {} warp {} lanes {:08x} at {} ({})", text.empty() ? "" : "; ", block_.number, index_,
                        together, instruction.opcode, program.entry().place_of(instruction));
    left &= ~together;
  }
  return text;
}

void Warp::fault(const std::string& what) const {
  const Program& program = *block_.launch.program;
  const Instruction& instruction = *current().text;
  throw Fault(fmt::format("{}: {}: {} (block {}, warp {}): {}", program.entry().name,
                          program.entry().place_of(instruction), instruction.opcode, block_.number, index_, what));
}

void Warp::require_defined(Slot slot, std::uint32_t lanes, const char* what) {
  if ((poison_[slot.index] & lanes) == 0) return;
  fault(fmt::format("lane {}: {} depends on a value that nobody has written or waited for",
                    __builtin_ctz(poison_[slot.index] & lanes), what));
}

void Warp::polled(bool found_something_new) {
  if (found_something_new) {
    idle_polls = 0;
    machine().progressed();
  } else {
    ++idle_polls;
    yields_ = true;
  }
}

// Lanes at the same place run together. Mostly those that are furthest behind go first, so that lanes meet again where
// their paths join; sometimes others, since nothing promises that order (independent thread scheduling).
std::uint32_t Warp::choose_lanes() {
  const std::uint32_t able = live() & ~parked_;
  if (able == 0) return 0;
  const int first = __builtin_ctz(able);
  int chosen = pc_[static_cast<std::size_t>(first)];
  const bool least = machine().random().below(4) != 0 || machine().options().steady;
  const auto drawn = static_cast<int>(machine().random().below(kLanes));
  for_lanes(able, [&](int lane) {
    const int its = pc_[static_cast<std::size_t>(lane)];
    if (least ? its < chosen : lane == drawn) chosen = its;
  });
  current_ = chosen;
  std::uint32_t lanes = 0;
  for_lanes(live(), [&](int lane) { lanes |= pc_[static_cast<std::size_t>(lane)] == chosen ? 1U << lane : 0U; });
  return lanes;
}

void Warp::at(int pc, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) { pc_[static_cast<std::size_t>(lane)] = pc; });
}

void Warp::exit(std::uint32_t lanes) {
  exited_ |= lanes;
  parked_ = 0;  // lanes that waited for these look again
  machine().progressed();
  if (exited_ != kAllLanes) return;
  if (!copies.empty()) fault("a warp ends with copies that it has not waited for");
  if (!products.empty()) fault("a warp ends with products that it has not waited for");
  block_.exited_threads += kLanes;
  end_barriers_of_exited(block_);
}

// True if all lanes that must meet here are among `lanes`.
bool Warp::have_met(const Op& op, std::uint32_t lanes) {
  std::uint32_t wanted = live();
  if (op.meeting == Meeting::mask) {
    const auto mask = static_cast<std::uint32_t>(bits(op.mask, __builtin_ctz(lanes)));
    if ((mask & lanes) != lanes) fault(fmt::format("lanes {:08x} are at an instruction for lanes {:08x}", lanes, mask));
    wanted &= mask;
  }
  return (wanted & ~lanes) == 0;
}

bool Warp::turn(int budget) {
  const std::vector<Op>& ops = block_.launch.program->ops();
  const bool has_products = block_.launch.program->has_products();
  Counts& counts = block_.launch.counts;
  bool advanced = false;
  yields_ = false;
  std::uint32_t lanes = choose_lanes();
  if (lanes == 0) fault("lanes of a warp wait for each other at different instructions: " + where());
  for (; budget > 0 && !yields_; --budget) {
    const Op& op = ops[static_cast<std::size_t>(current_)];
    std::uint32_t active = lanes;
    if (op.guarded) {
      require_defined(op.guard, lanes, "a condition");
      const std::uint32_t condition = predicate(op.guard);
      active &= op.guard_negated ? ~condition : condition;
    }
    if (op.meeting != Meeting::none && active != 0 && !have_met(op, active)) {
      parked_ |= lanes;
      lanes = choose_lanes();
      if (lanes == 0) fault("lanes of a warp wait for each other at different instructions: " + where());
      continue;
    }
    parked_ &= ~lanes;
    if (op.text->is_mutant) machine().reach_mutant();
    if (has_products && op.work != Work::tensor) {
      for (const Slot& from : op.from) read(from);
    }
    if (active != 0 && !op.run(*this, op, active)) {
      at(current_, lanes);
      return advanced;
    }
    advanced = true;
    counts.instructions[static_cast<std::size_t>(op.work)] += static_cast<std::uint64_t>(__builtin_popcount(active));
    ++counts.warp_instructions;
    ++block_.launch.executed[static_cast<std::size_t>(current_)];
    if (op.target < 0 && !op.exits) {
      ++current_;
      if (lanes == live()) continue;
      at(current_, lanes);
      lanes = with_those_who_are_here(lanes);
      continue;
    }
    at(current_ + 1, lanes & ~active);
    if (op.target >= 0) at(op.target, active);
    if (op.exits) exit(active);
    if (live() == 0) return true;
    lanes = choose_lanes();
    if (lanes == 0) fault("lanes of a warp wait for each other at different instructions: " + where());
  }
  at(current_, lanes);
  return advanced;
}

std::uint32_t Warp::with_those_who_are_here(std::uint32_t lanes) const {
  for_lanes(live() & ~lanes, [&](int lane) {
    if (pc_[static_cast<std::size_t>(lane)] == current_) lanes |= 1U << lane;
  });
  return lanes;
}

}  // namespace lockstep::ptx
