#include "testing/ptx/mutants.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::ptx {
namespace {

bool starts(const Instruction& instruction, std::string_view with) {
  return instruction.opcode.starts_with(with);
}
bool contains(const Instruction& instruction, std::string_view part) {
  return instruction.opcode.find(part) != std::string::npos;
}

std::string replaced(std::string opcode, std::string_view from, std::string_view to) {
  return opcode.replace(opcode.find(from), from.size(), to);
}

Operand immediate(std::uint64_t value) {
  return {.kind = Operand::Kind::immediate, .bits = value};
}

class Mutations {
 public:
  Mutations(std::size_t index, const Instruction& original, std::vector<Mutation>& all)
      : index_(index), original_(original), all_(all) {}

  void leave_out(const std::string& kind) {
    Instruction changed = original_;
    changed.opcode = "mutant.nothing";
    changed.operands.clear();
    add(kind, "left out", std::move(changed));
  }
  void opcode(const std::string& kind, std::string_view from, std::string_view to) {
    Instruction changed = original_;
    changed.opcode = replaced(changed.opcode, from, to);
    add(kind, std::string(to) + " for " + std::string(from), std::move(changed));
  }
  void operand(const std::string& kind, const std::string& what, std::size_t which, std::uint64_t value) {
    Instruction changed = original_;
    changed.operands[which] = immediate(value);
    add(kind, what, std::move(changed));
  }
  void change(const std::string& kind, const std::string& what, Instruction changed) {
    add(kind, what, std::move(changed));
  }

 private:
  void add(const std::string& kind, const std::string& what, Instruction changed) {
    changed.is_mutant = true;
    all_.push_back({.index = index_, .what = what, .kind = kind, .changed = std::move(changed)});
  }
  std::size_t index_;
  const Instruction& original_;
  std::vector<Mutation>& all_;
};

void barriers(const Instruction& i, Mutations& make) {
  if (starts(i, "bar.sync") || starts(i, "barrier.cta.sync")) make.leave_out("bar.sync");
  if (starts(i, "bar.warp.sync")) make.leave_out("bar.warp.sync");
  if (starts(i, "barrier.cta.arrive")) make.leave_out("bar.arrive");
  if (starts(i, "barrier.cta.") && i.operands.size() > 1) {
    make.operand("bar count", "32 threads for those given", 1, 32);
  }
  if (starts(i, "barrier.cluster.wait")) make.leave_out("barrier.cluster");
  if (starts(i, "barrier.cluster.arrive.release")) make.opcode("barrier.cluster", ".release", ".relaxed");
}

void memory_barriers(const Instruction& i, Mutations& make) {
  if (starts(i, "mbarrier.try_wait")) {
    Instruction passes = i;  // does not wait
    passes.opcode = "setp.eq.u32";
    passes.operands = {i.operands[0], immediate(0), immediate(0)};
    make.change("mbarrier wait", "left out", std::move(passes));
  }
  if (starts(i, "mbarrier.arrive.expect_tx")) {
    make.opcode("expect_tx", ".expect_tx", "");
    make.operand("expect_tx", "64 bytes for those given", i.operands.size() - 1, 64);
  } else if (starts(i, "mbarrier.arrive")) {
    make.leave_out("mbarrier arrive");
  }
  if (starts(i, "mbarrier.init")) make.operand("mbarrier count", "a count of 29 for the one given", 1, 29);
}

void asynchronous(const Instruction& i, Mutations& make) {
  if (starts(i, "cp.async.wait_group"))
    make.operand("cp.async wait", "one group more may be left", 0, i.operands[0].bits + 1);
  if (starts(i, "cp.async.wait_all")) make.leave_out("cp.async wait");
  if (starts(i, "wgmma.fence")) make.leave_out("wgmma.fence");
  if (starts(i, "wgmma.commit_group")) make.leave_out("wgmma.commit");
  if (starts(i, "wgmma.wait_group"))
    make.operand("wgmma.wait", "one group more may be left", 0, i.operands[0].bits + 1);
  if (starts(i, "fence.proxy.async")) make.leave_out("fence.proxy");
}

void order(const Instruction& i, Mutations& make) {
  if (starts(i, "membar") || starts(i, "fence.acq_rel") || starts(i, "fence.sc") || starts(i, "fence.mbarrier_init")) {
    make.leave_out("fence");
  }
  if (starts(i, "fence.") && contains(i, ".gpu")) make.opcode("fence scope", ".gpu", ".cta");
  if (starts(i, "fence.") && contains(i, ".sys")) make.opcode("fence scope", ".sys", ".cta");
  if (starts(i, "membar.gl")) make.opcode("fence scope", ".gl", ".cta");
  if (contains(i, ".release") && !starts(i, "barrier") && !starts(i, "fence"))
    make.opcode("release", ".release", ".relaxed");
  if (contains(i, ".acquire") && !starts(i, "barrier") && !starts(i, "fence"))
    make.opcode("acquire", ".acquire", ".relaxed");
}

// Which lanes exchange is often in a register that was set just before: "by 16".
std::string step_of(const Entry& entry, std::size_t index) {
  const Instruction& shuffle = entry.instructions[index];
  const Operand& step = shuffle.operands[shuffle.operands.size() - 3];
  if (step.kind == Operand::Kind::immediate) return " by " + std::to_string(step.bits);
  for (std::size_t i = index; i-- > 0;) {
    const Instruction& earlier = entry.instructions[i];
    if (earlier.operands.empty() || earlier.operands[0].reg != step.reg) continue;
    const bool is_number = starts(earlier, "mov") && earlier.operands[1].kind == Operand::Kind::immediate;
    return is_number ? " by " + std::to_string(earlier.operands[1].bits) : "";
  }
  return "";
}

void shuffles(const Entry& entry, std::size_t index, Mutations& make) {
  const Instruction& i = entry.instructions[index];
  if (!starts(i, "shfl.sync")) return;
  make.operand("shfl width", "1 lane for those given" + step_of(entry, index), i.operands.size() - 2, 0x1f1f);
}

void values(const Instruction& i, Mutations& make) {
  constexpr std::uint64_t kSwizzle = std::uint64_t{3} << 62;
  for (std::size_t o = 0; o < i.operands.size(); ++o) {
    const Operand& operand = i.operands[o];
    const bool is_descriptor =
        (starts(i, "or.b64") || starts(i, "add.s64") || starts(i, "mov.u64") || starts(i, "mov.b64")) &&
        operand.kind == Operand::Kind::immediate && operand.bits >> 62 == 1;
    if (is_descriptor) make.operand("swizzle", "none for 128 bytes", o, operand.bits & ~kSwizzle);
  }
}

// A check of bounds: the predicate by which threads whose index is too large skip an access to global memory.
void bounds(const Entry& entry, std::size_t index, Mutations& make) {
  constexpr int kMostSkipped = 60;
  const Instruction& i = entry.instructions[index];
  if (!starts(i, "setp.ge.s") && !starts(i, "setp.gt.s")) return;
  if (index + 1 >= entry.instructions.size()) return;
  const Instruction& next = entry.instructions[index + 1];
  if (!starts(next, "bra") || next.guard != i.operands[0].reg || next.guard_negated) return;
  const auto label = entry.labels.find(next.operands[0].symbol);
  const int from = static_cast<int>(index) + 2;
  if (label == entry.labels.end() || label->second < from || label->second > from + kMostSkipped) return;
  const bool skips_access = std::any_of(
      entry.instructions.begin() + from, entry.instructions.begin() + label->second,
      [](const Instruction& skipped) { return starts(skipped, "ld.global") || starts(skipped, "st.global"); });
  if (!skips_access) return;
  Instruction always = i;
  always.opcode = "setp.ne.u32";
  always.operands = {i.operands[0], immediate(0), immediate(0)};
  make.change("bounds", "left out", std::move(always));
}

}  // namespace

std::vector<Mutation> mutations_of(const Entry& entry) {
  std::vector<Mutation> all;
  for (std::size_t index = 0; index < entry.instructions.size(); ++index) {
    const Instruction& instruction = entry.instructions[index];
    Mutations make(index, instruction, all);
    barriers(instruction, make);
    memory_barriers(instruction, make);
    asynchronous(instruction, make);
    order(instruction, make);
    values(instruction, make);
    shuffles(entry, index, make);
    bounds(entry, index, make);
  }
  return all;
}

std::shared_ptr<const Entry> mutated(const Entry& entry, const Mutation& mutation) {
  auto copy = std::make_shared<Entry>(entry);
  copy->instructions[mutation.index] = mutation.changed;
  return copy;
}

}  // namespace lockstep::ptx
