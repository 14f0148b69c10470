// Control flow, barriers of a block and of a cluster, fences, and exchanges within a warp (PTX ISA 9.0,
// sections 9.7.9.4, 9.7.12 and 9.7.13).
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"

namespace lockstep::ptx {
namespace {

bool nothing(Warp& /*warp*/, const Op& /*op*/, std::uint32_t /*lanes*/) {
  return true;
}

// --- Barriers of a block and of a cluster ---

void end_generation(Meetpoint& point) {
  point.ended[point.generation] = {std::move(point.arriving), point.any};
  while (point.ended.size() > 4) point.ended.erase(point.ended.begin());
  ++point.generation;
  point.arrived = 0;
  point.expected = 0;
  point.arriving = {};
  point.any = false;
}

// A barrier without a number of threads waits for all that have not exited.
void end_if_complete(const Block& block, Meetpoint& point) {
  const std::uint32_t exited = point.expected == block.num_threads ? block.exited_threads : 0;
  if (point.arrived > 0 && point.arrived + exited >= point.expected) end_generation(point);
}

void arrive_at(Warp& warp, Meetpoint& point, std::uint32_t threads, std::uint32_t lanes) {
  if (point.arrived > 0 && point.expected != threads) {
    warp.fault(fmt::format("a barrier for {} threads at which others wait for {}", threads, point.expected));
  }
  if (threads % kLanes != 0) warp.fault(fmt::format("a barrier for {} threads, which are not whole warps", threads));
  point.expected = threads;
  point.arrived += kLanes;
  point.arriving.join(warp.released(lanes));
  if (point.arrived > point.expected) {
    warp.fault(fmt::format("{} threads at a barrier for {}", point.arrived, point.expected));
  }
  warp.machine().progressed();
  end_if_complete(warp.block(), point);
}

Meetpoint& barrier_of(Warp& warp, const Op& op, int lane) {
  const std::uint64_t id = warp.bits(op.from[0], lane) & 0xffffffffU;
  if (id >= warp.block().barriers.size()) warp.fault(fmt::format("barrier {} does not exist; allowed: 0 to 15", id));
  return warp.block().barriers[id];
}

enum BarrierKind { kSync, kArrive, kRedOr, kRedAnd, kRedPopc };

bool barrier(Warp& warp, const Op& op, std::uint32_t lanes) {
  const int first = __builtin_ctz(lanes);
  Meetpoint& point = barrier_of(warp, op, first);
  if (!warp.waiting.arrived) {
    const auto threads =
        op.number > 0 ? static_cast<std::uint32_t>(warp.bits(op.from[1], first)) : warp.block().num_threads;
    warp.waiting = {.arrived = true, .generation = point.generation};
    if (op.detail == kRedOr) {
      const Slot value = op.from.back();
      const std::uint32_t bits = (op.negated & 1U) != 0 ? ~warp.predicate(value) : warp.predicate(value);
      warp.require_defined(value, lanes, "a barrier's predicate");
      point.any = point.any || (bits & lanes) != 0;
    }
    arrive_at(warp, point, threads, lanes);
    if (op.detail == kArrive) {
      warp.waiting = {};
      warp.meet();
      return true;
    }
  }
  if (point.generation == warp.waiting.generation) return false;
  const auto& [view, any] = point.ended.at(warp.waiting.generation);
  warp.acquire(view);
  if (op.detail == kRedOr) {
    for_lanes(lanes, [&, result = any](int lane) { warp.set_bits(op.to[0], lane, result ? 1 : 0); });
    warp.poison(op.to[0]) &= ~lanes;
  }
  warp.waiting = {};
  warp.meet();
  return true;
}

// barrier.cluster.arrive and .wait: each warp arrives once per phase.
Meetpoint& barrier_of_cluster(Warp& warp) {
  Block& block = warp.block();
  return block.launch.cluster_barriers[block.number / std::max<std::size_t>(1, block.cluster.size())];
}
std::uint32_t threads_of_cluster(const Warp& warp) {
  return warp.block().num_threads * static_cast<std::uint32_t>(std::max<std::size_t>(1, warp.block().cluster.size()));
}

bool cluster_arrive(Warp& warp, const Op& op, std::uint32_t lanes) {
  Meetpoint& point = barrier_of_cluster(warp);
  if (warp.waiting_cluster.arrived) warp.fault("barrier.cluster.arrive twice without a wait");
  warp.waiting_cluster = {.arrived = true, .generation = point.generation};
  point.expected = threads_of_cluster(warp);
  point.arrived += kLanes;
  if (op.order == Order::release) point.arriving.join(warp.released(lanes));
  warp.machine().progressed();
  std::uint32_t exited = 0;
  for (const Block* block : warp.block().cluster) exited += block->exited_threads;
  if (point.arrived + exited >= point.expected) end_generation(point);
  warp.meet();
  return true;
}

bool cluster_wait(Warp& warp, const Op& op, std::uint32_t /*lanes*/) {
  Meetpoint& point = barrier_of_cluster(warp);
  if (!warp.waiting_cluster.arrived) warp.fault("barrier.cluster.wait without an arrive");
  if (point.generation == warp.waiting_cluster.generation) return false;
  if (op.order == Order::acquire) warp.acquire(point.ended.at(warp.waiting_cluster.generation).first);
  warp.waiting_cluster = {};
  warp.meet();
  return true;
}

// --- Within a warp ---

bool meet_warp(Warp& warp, const Op& /*op*/, std::uint32_t /*lanes*/) {
  warp.meet();
  return true;
}

enum ShuffleKind { kUp, kDown, kBfly, kIdx };

// shfl.sync d|p, a, b, c: PTX ISA's pseudocode of shfl.sync.
bool shuffle(Warp& warp, const Op& op, std::uint32_t lanes) {
  std::array<std::uint64_t, kLanes> values{};
  for_lanes(lanes, [&](int lane) { values[static_cast<std::size_t>(lane)] = warp.bits(op.from[0], lane); });
  const std::uint32_t poison = warp.poison(op.from[0]);
  std::uint32_t found_poison = 0;
  std::uint32_t in_range = 0;
  for_lanes(lanes, [&](int lane) {
    const auto b = static_cast<int>(warp.bits(op.from[1], lane) & 31U);
    const auto c = static_cast<std::uint32_t>(warp.bits(op.from[2], lane));
    const int clamp = static_cast<int>(c & 31U);
    const int segment = static_cast<int>(c >> 8 & 31U);
    const int most = (lane & segment) | (clamp & ~segment);
    const int least = lane & segment;
    int source = 0;
    bool valid = false;
    switch (op.detail) {
      case kUp:
        source = lane - b, valid = source >= most;
        break;
      case kDown:
        source = lane + b, valid = source <= most;
        break;
      case kBfly:
        source = lane ^ b, valid = source <= most;
        break;
      default:
        source = least | (b & ~segment), valid = source <= most;
        break;
    }
    if (!valid) source = lane;
    if ((lanes >> source & 1U) == 0) {
      warp.fault(fmt::format("shfl.sync: lane {} reads lane {}, which does not take part", lane, source));
    }
    warp.set_bits(op.to[0], lane, values[static_cast<std::size_t>(source)]);
    if ((poison >> source & 1U) != 0) found_poison |= 1U << lane;
    if (valid) in_range |= 1U << lane;
  });
  warp.poison(op.to[0]) = (warp.poison(op.to[0]) & ~lanes) | found_poison;
  warp.wrote(op.to[0]);
  if (op.to.size() > 1) {
    warp.predicate(op.to[1]) = (warp.predicate(op.to[1]) & ~lanes) | in_range;
    warp.poison(op.to[1]) &= ~lanes;
  }
  warp.meet();
  return true;
}

enum VoteKind { kBallot, kAny, kAll, kUni };

bool vote(Warp& warp, const Op& op, std::uint32_t lanes) {
  warp.require_defined(op.from[0], lanes, "the predicate of a vote");
  const std::uint32_t raw = warp.predicate(op.from[0]);
  const std::uint32_t yes = ((op.negated & 1U) != 0 ? ~raw : raw) & lanes;
  const bool decided = op.detail == kAny ? yes != 0 : op.detail == kAll ? yes == lanes : yes == 0 || yes == lanes;
  for_lanes(lanes, [&](int lane) { warp.set_bits(op.to[0], lane, op.detail == kBallot ? yes : decided ? 1 : 0); });
  warp.poison(op.to[0]) &= ~lanes;
  warp.wrote(op.to[0]);
  warp.meet();
  return true;
}

bool active_mask(Warp& warp, const Op& op, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) { warp.set_bits(op.to[0], lane, lanes); });
  warp.poison(op.to[0]) &= ~lanes;
  return true;
}

bool elect(Warp& warp, const Op& op, std::uint32_t lanes) {
  const int leader = __builtin_ctz(lanes);
  for (const Slot& to : op.to) {
    for_lanes(lanes, [&](int lane) {
      warp.set_bits(to, lane,
                    to.bytes == 0 ? static_cast<std::uint64_t>(lane == leader) : static_cast<std::uint64_t>(leader));
    });
    warp.poison(to) &= ~lanes;
  }
  warp.meet();
  return true;
}

// --- Fences ---

bool fence(Warp& warp, const Op& op, std::uint32_t lanes) {
  warp.fence(op.scope, lanes);
  return true;
}
// Makes barriers that the thread has initialized visible to the copy engine, too.
bool fence_initialization(Warp& warp, const Op& op, std::uint32_t lanes) {
  warp.fence(op.scope, lanes);
  warp.fence_proxy(lanes);
  return true;
}
bool fence_proxy(Warp& warp, const Op& /*op*/, std::uint32_t lanes) {
  warp.fence_proxy(lanes);
  return true;
}

// --- Others ---

bool wait_for_grid(Warp& warp, const Op& /*op*/, std::uint32_t /*lanes*/) {
  LaunchState& launch = warp.block().launch;
  if (launch.launch.after == 0) return true;
  if (warp.machine().is_running(launch.launch.after)) {
    warp.polled(false);
    return false;
  }
  return true;
}
bool sleep(Warp& warp, const Op& /*op*/, std::uint32_t /*lanes*/) {
  warp.yield();
  return true;
}
bool trap(Warp& warp, const Op& /*op*/, std::uint32_t /*lanes*/) {
  warp.fault("trap");
}

Scope scope_named(const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (part == "cta") return Scope::block;
    if (part == "cluster") return Scope::cluster;
    if (part == "gpu" || part == "gl") return Scope::device;
    if (part == "sys") return Scope::system;
  }
  return Scope::none;
}

bool decode_barrier(Program& program, Op& op, const std::vector<std::string>& parts) {
  const auto& operands = op.text->operands;
  op.work = Work::barrier;
  if (parts[0] == "bar" && parts[1] == "warp") {
    op.meeting = Meeting::mask;
    op.mask = program.value_of(operands[0], Type::u32);
    op.run = meet_warp;
    return true;
  }
  op.meeting = Meeting::warp;
  if (parts[0] == "barrier" && parts[1] == "cluster") {
    const bool arrives = parts[2] == "arrive";
    // The defaults are .release and .acquire.
    op.order = has(parts, "relaxed") ? Order::relaxed : arrives ? Order::release : Order::acquire;
    op.run = arrives ? cluster_arrive : cluster_wait;
    return true;
  }
  const std::size_t at = parts[1] == "cta" ? 2 : 1;
  std::size_t next = 0;
  if (parts[at] == "red") {
    if (parts[at + 1] != "or") return false;
    op.detail = kRedOr;
    op.to = {program.slot_of(operands[next++].reg)};
  } else {
    op.detail = parts[at] == "arrive" ? kArrive : kSync;
  }
  op.from = {program.value_of(operands[next++], Type::u32)};
  const std::size_t values = op.detail == kRedOr ? 1 : 0;
  if (operands.size() - next > values) {
    op.from.push_back(program.value_of(operands[next++], Type::u32));
    op.number = 1;
  }
  if (values > 0) {
    op.negated = operands[next].negated ? 1U : 0U;
    op.from.push_back(program.value_of(operands[next], Type::pred));
  }
  op.run = barrier;
  return true;
}

bool decode_shuffle(Program& program, Op& op, const std::vector<std::string>& parts) {
  const auto& operands = op.text->operands;
  const std::string& kind = parts[2];
  op.detail = kind == "up" ? kUp : kind == "down" ? kDown : kind == "bfly" ? kBfly : kIdx;
  const std::size_t outputs = operands.size() - 4;
  for (std::size_t i = 0; i < outputs; ++i) {
    if (operands[i].kind == Operand::Kind::reg) op.to.push_back(program.slot_of(operands[i].reg));
  }
  for (std::size_t i = outputs; i < outputs + 3; ++i) op.from.push_back(program.value_of(operands[i], Type::u32));
  op.meeting = Meeting::mask;
  op.mask = program.value_of(operands.back(), Type::u32);
  op.run = shuffle;
  return true;
}

bool decode_vote(Program& program, Op& op, const std::vector<std::string>& parts) {
  const auto& operands = op.text->operands;
  const std::string& kind = parts[2];
  op.detail = kind == "ballot" ? kBallot : kind == "any" ? kAny : kind == "all" ? kAll : kUni;
  op.to = {program.slot_of(operands[0].reg)};
  op.from = {program.value_of(operands[1], Type::pred)};
  op.negated = operands[1].negated ? 1U : 0U;
  op.meeting = Meeting::mask;
  op.mask = program.value_of(operands[2], Type::u32);
  op.run = vote;
  return true;
}

bool decode_fence(Op& op, const std::vector<std::string>& parts) {
  op.work = Work::barrier;
  if (has(parts, "proxy")) {
    op.run = has(parts, "async") || has(parts, "alias") || has(parts, "tensormap::generic") ? fence_proxy : nullptr;
    return op.run != nullptr;
  }
  const bool initializes = has(parts, "mbarrier_init");
  op.scope = initializes ? Scope::cluster : scope_named(parts);
  op.run = initializes ? fence_initialization : fence;
  return true;
}

}  // namespace

void end_barriers_of_exited(Block& block) {
  for (Meetpoint& point : block.barriers) end_if_complete(block, point);
}

bool decode_control(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  const std::string& name = parts[0];
  const auto& operands = op.text->operands;
  op.work = Work::control;
  if (name == "bra") {
    const auto& labels = program.entry().labels;
    const auto found = labels.find(operands[0].symbol);
    if (found == labels.end()) throw core::Error(core::Failure::usage, "no such label: " + operands[0].symbol);
    op.target = found->second;
    op.run = nothing;
    return true;
  }
  if (name == "ret" || name == "exit") {
    op.exits = true;
    op.run = nothing;
    return true;
  }
  if (name == "bar" || name == "barrier") return decode_barrier(program, op, parts);
  if (name == "shfl") return decode_shuffle(program, op, parts);
  if (name == "vote") return decode_vote(program, op, parts);
  if (name == "fence" || name == "membar") return decode_fence(op, parts);
  if (name == "activemask") {
    op.to = {program.slot_of(operands[0].reg)};
    op.run = active_mask;
    return true;
  }
  if (name == "elect") {
    for (std::size_t i = 0; i + 1 < operands.size(); ++i) {
      if (operands[i].kind == Operand::Kind::reg) op.to.push_back(program.slot_of(operands[i].reg));
    }
    op.meeting = Meeting::mask;
    op.mask = program.value_of(operands.back(), Type::u32);
    op.run = elect;
    return true;
  }
  if (name == "griddepcontrol") {
    op.run = parts[1] == "wait" ? wait_for_grid : nothing;
    return true;
  }
  if (name == "nanosleep") {
    op.run = sleep;
    return true;
  }
  if (name == "mutant") {
    op.run = nothing;
    return true;
  }
  if (name == "trap") {
    op.run = trap;
    return true;
  }
  if (name == "setmaxnreg") {
    op.meeting = Meeting::warp;
    op.run = nothing;
    return true;
  }
  return false;
}

}  // namespace lockstep::ptx
