// Barriers in shared memory: mbarrier (PTX ISA 9.0, section 9.7.13.15).
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"

namespace lockstep::ptx {
namespace {

MemoryBarrier& memory_barrier(Warp& warp, const Op& op, int lane) {
  const Warp::Place place = warp.locate(Space::shared, warp.address(op, op.from[0], lane), 8, lane);
  const auto found = place.block->memory_barriers.find(static_cast<std::uint32_t>(place.offset));
  if (found == place.block->memory_barriers.end()) {
    warp.fault(fmt::format("lane {} uses a barrier at offset {} of shared memory that nobody has initialized", lane,
                           place.offset));
  }
  return found->second;
}

bool begin_barrier(Warp& warp, const Op& op, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const Warp::Place place = warp.locate(Space::shared, warp.address(op, op.from[0], lane), 8, lane);
    const auto count = static_cast<std::uint32_t>(warp.bits(op.from[1], lane));
    if (count == 0 || count >= 1U << 20) warp.fault(fmt::format("mbarrier.init with a count of {}", count));
    warp.on_write(place, 8, lane, op);
    MemoryBarrier& barrier = place.block->memory_barriers[static_cast<std::uint32_t>(place.offset)];
    barrier = {};
    barrier.count = count;
    barrier.pending = count;
    barrier.initialized_by = warp.access_of(op, lane, Proxy::generic);
  });
  return true;
}

// A barrier may be used by who is ordered after its initialization.
void check_initialized(Warp& warp, const MemoryBarrier& barrier, int lane) {
  if (!warp.is_ordered(barrier.initialized_by, lane, Proxy::generic)) {
    warp.fault(fmt::format("lane {} uses a barrier in shared memory whose initialization nothing orders before", lane));
  }
}

bool arrive_at_memory(Warp& warp, const Op& op, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    MemoryBarrier& barrier = memory_barrier(warp, op, lane);
    check_initialized(warp, barrier, lane);
    if (op.detail == 1) {  // expects bytes
      barrier.bytes += static_cast<std::int64_t>(warp.bits(op.from[1], lane) & 0xffffffffU);
    }
    barrier.arriving.join(warp.released(1U << lane));
    if (op.detail == 2) {  // only expects bytes
      barrier.bytes += static_cast<std::int64_t>(warp.bits(op.from[1], lane) & 0xffffffffU);
      return;
    }
    if (--barrier.pending < 0) warp.fault(fmt::format("lane {}: more arrivals at a barrier than its count", lane));
    complete_phase(barrier);
  });
  warp.machine().progressed();
  return true;
}

bool wait_at_memory(Warp& warp, const Op& op, std::uint32_t lanes) {
  bool waits = false;
  for_lanes(lanes, [&](int lane) {
    MemoryBarrier& barrier = memory_barrier(warp, op, lane);
    check_initialized(warp, barrier, lane);
    const auto parity = static_cast<std::uint32_t>(warp.bits(op.from[1], lane)) & 1U;
    const bool ended = (barrier.phase & 1U) != parity;
    if (!ended && warp.machine().options().steady) {
      waits = true;
      return;
    }
    warp.set_bits(op.to[0], lane, ended ? 1 : 0);
    if (ended) {
      warp.acquire(barrier.ended[parity]);
    } else {
      waits = true;
    }
  });
  warp.poison(op.to[0]) &= ~lanes;
  warp.wrote(op.to[0]);
  warp.polled(!waits);
  return !waits || !warp.machine().options().steady;
}

}  // namespace

void complete_phase(MemoryBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.ended[barrier.phase & 1U] = std::move(barrier.arriving);
  barrier.arriving = {};
  ++barrier.phase;
  barrier.pending = barrier.count;
}

bool decode_memory_barrier(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  if (parts[0] != "mbarrier") return false;
  const auto& operands = op.text->operands;
  op.work = Work::barrier;
  op.space = Space::shared;
  op.type = Type::b64;
  if (parts[1] == "init") {
    op.from = {program.address_of(operands[0]), program.value_of(operands[1], Type::u32)};
    op.offset = operands[0].offset;
    op.run = begin_barrier;
    return true;
  }
  if (parts[1] == "inval") {
    op.run = [](Warp&, const Op&, std::uint32_t) { return true; };
    return true;
  }
  if (parts[1] == "arrive" || parts[1] == "expect_tx") {
    const bool has_state = operands[0].kind != Operand::Kind::memory;
    const std::size_t at = has_state ? 1 : 0;
    if (has_state && operands[0].kind != Operand::Kind::sink) return false;  // states are not used
    op.from = {program.address_of(operands[at])};
    op.offset = operands[at].offset;
    op.detail = parts[1] == "expect_tx" ? 2 : has(parts, "expect_tx") ? 1 : 0;
    if (op.detail != 0) op.from.push_back(program.value_of(operands[at + 1], Type::u32));
    op.run = arrive_at_memory;
    return true;
  }
  if (parts[1] == "try_wait" || parts[1] == "test_wait") {
    if (!has(parts, "parity")) return false;
    op.to = {program.slot_of(operands[0].reg)};
    op.from = {program.address_of(operands[1]), program.value_of(operands[2], Type::u32)};
    op.offset = operands[1].offset;
    op.run = wait_at_memory;
    return true;
  }
  return false;
}

}  // namespace lockstep::ptx
