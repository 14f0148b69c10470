// Loads, stores, atomics, addresses and copies of single threads (PTX ISA 9.0, sections 9.7.9 and 9.7.13).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"
#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"
#include "testing/ptx/requests.h"

namespace lockstep::ptx {
namespace {

struct Places {
  std::array<Warp::Place, kLanes> at;
};

Places locate_all(Warp& warp, const Op& op, Slot base, std::uint32_t lanes, std::size_t bytes) {
  warp.require_defined(base, lanes, "an address");
  Places places;
  for_lanes(lanes, [&](int lane) {
    places.at[static_cast<std::size_t>(lane)] = warp.locate(op.space, warp.address(op, base, lane), bytes, lane);
  });
  return places;
}

std::uint64_t extended(std::uint64_t bits, Type type, int register_bytes) {
  if (is_signed(type) && bytes_of(type) < register_bytes) {
    const int shift = 64 - 8 * bytes_of(type);
    bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift);
    if (register_bytes == 4) bits &= 0xffffffffU;
  }
  return bits;
}

bool load(Warp& warp, const Op& op, std::uint32_t lanes) {
  const auto elem = static_cast<std::size_t>(bytes_of(op.type));
  const std::size_t bytes = elem * op.to.size();
  const Places places = locate_all(warp, op, op.from[0], lanes, bytes);
  if (op.space != Space::param) count_request(warp, places.at.data(), lanes, bytes, false);
  bool changed = false;
  for (const Slot& to : op.to) warp.poison(to) &= ~lanes;
  for_lanes(lanes, [&](int lane) {
    const Warp::Place& place = places.at[static_cast<std::size_t>(lane)];
    warp.on_read(place, bytes, lane, op);
    for (std::size_t i = 0; i < op.to.size(); ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, place.data + i * elem, elem);
      bits = extended(bits, op.type, op.to[i].bytes);
      changed = changed || warp.bits(op.to[i], lane) != bits;
      warp.set_bits(op.to[i], lane, bits);
      if (place.shadow != nullptr && !place.shadow->is_initialized(place.offset + i * elem, elem)) {
        warp.poison(op.to[i]) |= 1U << lane;
      }
    }
    if (op.order != Order::weak && place.shadow != nullptr) warp.strong_load(place, op);
  });
  for (const Slot& to : op.to) warp.wrote(to);
  if (op.order != Order::weak) warp.polled(changed);
  return true;
}

// Threads may store the same value without order between them: whoever comes last, memory is the same.
bool changes_nothing(Warp& warp, const Op& op, const Warp::Place& place, int lane) {
  const auto elem = static_cast<std::size_t>(bytes_of(op.type));
  const std::size_t num = op.from.size() - 1;
  if (op.order != Order::weak || place.shadow == nullptr || !place.shadow->is_initialized(place.offset, elem * num))
    return false;
  for (std::size_t i = 0; i < num; ++i) {
    const std::uint64_t bits = warp.bits(op.from[i + 1], lane);
    if ((warp.poison(op.from[i + 1]) >> lane & 1U) != 0 || std::memcmp(place.data + i * elem, &bits, elem) != 0)
      return false;
  }
  return true;
}

bool store(Warp& warp, const Op& op, std::uint32_t lanes) {
  const auto elem = static_cast<std::size_t>(bytes_of(op.type));
  const std::size_t num = op.from.size() - 1;
  const std::size_t bytes = elem * num;
  const Places places = locate_all(warp, op, op.from[0], lanes, bytes);
  count_request(warp, places.at.data(), lanes, bytes, true);
  for_lanes(lanes, [&](int lane) {
    const Warp::Place& place = places.at[static_cast<std::size_t>(lane)];
    if (place.space == Space::param) warp.fault("a store to parameters");
    if (changes_nothing(warp, op, place, lane)) return;
    warp.on_write(place, bytes, lane, op);
    for (std::size_t i = 0; i < num; ++i) {
      const std::uint64_t bits = warp.bits(op.from[i + 1], lane);
      std::memcpy(place.data + i * elem, &bits, elem);
      if ((warp.poison(op.from[i + 1]) >> lane & 1U) == 0) continue;
      if (place.space == Space::global) {
        warp.fault(fmt::format("lane {} stores a value that nobody has written or waited for", lane));
      }
      if (place.shadow != nullptr) place.shadow->set_initialized(place.offset + i * elem, elem, false);
    }
    if (op.order != Order::weak && place.shadow != nullptr) warp.strong_store(place, op, 1U << lane, false);
  });
  warp.machine().progressed();
  return true;
}

enum class Atomic : std::uint8_t { add, exch, max, min, bit_and, bit_or, bit_xor, cas, inc };

template <class T>
T combined(Atomic how, T old, T value) {
  switch (how) {
    case Atomic::add:
      return static_cast<T>(old + value);
    case Atomic::exch:
      return value;
    case Atomic::max:
      return std::max(old, value);
    case Atomic::min:
      return std::min(old, value);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (how == Atomic::bit_and) return static_cast<T>(old & value);
    if (how == Atomic::bit_or) return static_cast<T>(old | value);
    if (how == Atomic::bit_xor) return static_cast<T>(old ^ value);
    if (how == Atomic::inc) return static_cast<T>(old >= value ? 0 : old + 1);
  }
  return value;
}

template <class T>
std::uint64_t combined_bits(Atomic how, std::uint64_t old, std::uint64_t value) {
  T a;
  T b;
  std::memcpy(&a, &old, sizeof a);
  std::memcpy(&b, &value, sizeof b);
  const T c = combined(how, a, b);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &c, sizeof c);
  return bits;
}

std::uint64_t updated(const Op& op, std::uint64_t old, std::uint64_t value) {
  const auto how = static_cast<Atomic>(op.detail);
  switch (op.type) {
    case Type::f32:
      return combined_bits<float>(how, old, value);
    case Type::f64:
      return combined_bits<double>(how, old, value);
    case Type::s32:
      return combined_bits<std::int32_t>(how, old, value);
    case Type::s64:
      return combined_bits<std::int64_t>(how, old, value);
    default:
      break;
  }
  return bytes_of(op.type) == 8 ? combined_bits<std::uint64_t>(how, old, value)
                                : combined_bits<std::uint32_t>(how, old, value);
}

// atom and red: op.from is the address, then as many values as the vector has, and for cas the new one.
bool atomic(Warp& warp, const Op& op, std::uint32_t lanes) {
  const auto elem = static_cast<std::size_t>(bytes_of(op.type));
  const auto num = static_cast<std::size_t>(op.number);
  const Places places = locate_all(warp, op, op.from[0], lanes, elem * num);
  count_request(warp, places.at.data(), lanes, elem * num, true);
  for (const Slot& value : op.from) warp.require_defined(value, lanes, "a value of an atomic operation");
  for_lanes(lanes, [&](int lane) {
    const Warp::Place& place = places.at[static_cast<std::size_t>(lane)];
    if (place.shadow == nullptr) warp.fault("an atomic operation on memory that is not shared or global");
    if (!place.shadow->is_initialized(place.offset, elem * num)) {
      warp.fault(fmt::format("lane {}: an atomic operation on memory that nobody has written", lane));
    }
    warp.strong_load(place, op);
    warp.on_write(place, elem * num, lane, op);
    for (std::size_t i = 0; i < num; ++i) {
      std::uint64_t old = 0;
      std::memcpy(&old, place.data + i * elem, elem);
      const std::uint64_t value = warp.bits(op.from[i + 1], lane);
      std::uint64_t result = 0;
      if (static_cast<Atomic>(op.detail) == Atomic::cas) {
        result = old == value ? warp.bits(op.from[2], lane) : old;
      } else {
        result = updated(op, old, value);
      }
      std::memcpy(place.data + i * elem, &result, elem);
      if (i < op.to.size()) warp.set_bits(op.to[i], lane, old);
    }
    warp.strong_store(place, op, 1U << lane, true);
  });
  for (const Slot& to : op.to) {
    warp.poison(to) &= ~lanes;
    warp.wrote(to);
  }
  warp.machine().progressed();
  return true;
}

// cvta, mapa and their like: op.detail is added to the address.
bool to_generic(Warp& warp, const Op& op, std::uint32_t lanes) {
  const std::uint64_t window = op.space == Space::shared  ? kSharedWindow
                               : op.space == Space::local ? kLocalWindow
                               : op.space == Space::param ? kParamWindow
                                                          : 0;
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t at = warp.bits(op.from[0], lane);
    const bool keeps = (at & kWindowMask) == window;  // a depot's address has its window already
    warp.set_bits(op.to[0], lane, op.detail == 1 ? at & ~kWindowMask : keeps ? at : at | window);
  });
  warp.poison(op.to[0]) = (warp.poison(op.to[0]) & ~lanes) | (warp.poison(op.from[0]) & lanes);
  warp.wrote(op.to[0]);
  return true;
}

bool map_to_rank(Warp& warp, const Op& op, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t at = warp.bits(op.from[0], lane);
    const std::uint64_t rank = warp.bits(op.from[1], lane) & 0xffffffffU;
    if (rank >= warp.block().cluster.size()) warp.fault(fmt::format("mapa: the cluster has no block {}", rank));
    const std::uint64_t offset = at & ((1U << kRankShift) - 1);
    warp.set_bits(op.to[0], lane, (at & kWindowMask) | (rank + 1) << kRankShift | offset);
  });
  warp.poison(op.to[0]) =
      (warp.poison(op.to[0]) & ~lanes) | ((warp.poison(op.from[0]) | warp.poison(op.from[1])) & lanes);
  warp.wrote(op.to[0]);
  return true;
}

// cp.async: the bytes arrive at some time between now and the wait for their group, and nobody may touch them before.
void finish(Warp& warp, Warp::Copy& copy) {
  if (copy.done) return;
  copy.done = true;
  std::byte* const to = &copy.block->shared[copy.to];
  std::memset(to, 0, copy.bytes);
  if (copy.read_bytes == 0) return;
  const Warp::Place from = warp.locate(Space::global, copy.from, copy.bytes, copy.lane);
  std::memcpy(to, from.data, copy.read_bytes);
}

bool copy_async(Warp& warp, const Op& op, std::uint32_t lanes) {
  warp.require_defined(op.from[0], lanes, "an address");
  warp.require_defined(op.from[1], lanes, "an address");
  const auto bytes = static_cast<std::size_t>(op.number);
  Places reads;
  std::uint32_t reading = 0;
  for_lanes(lanes, [&](int lane) {
    std::size_t read_bytes = bytes;
    if (op.from.size() > 2) read_bytes = std::min<std::size_t>(bytes, warp.bits(op.from[2], lane) & 0xffffffffU);
    const Warp::Place to = warp.locate(Space::shared, warp.address(op, op.from[0], lane), bytes, lane);
    const std::uint64_t from = warp.bits(op.from[1], lane) + static_cast<std::uint64_t>(op.detail);
    if (read_bytes > 0) {
      const Warp::Place place = warp.locate(Space::global, from, bytes, lane);
      warp.on_read(place, read_bytes, lane, op);
      if (!place.shadow->is_initialized(place.offset, read_bytes)) {
        warp.fault(fmt::format("lane {} copies global memory that nobody has written", lane));
      }
      reads.at[static_cast<std::size_t>(lane)] = place;
      reading |= 1U << lane;
    }
    warp.on_write(to, bytes, lane, op);
    to.shadow->for_cells(to.offset, bytes, [](Shadow::Cell& cell) { cell.writer.is_in_flight = 1; });
    warp.copies.push_back({.lane = lane,
                           .group = warp.groups[static_cast<std::size_t>(lane)],
                           .block = to.block,
                           .to = to.offset,
                           .from = from,
                           .bytes = bytes,
                           .read_bytes = read_bytes,
                           .done = false,
                           .op = &op});
    if (warp.machine().random().below(2) == 0) finish(warp, warp.copies.back());
  });
  count_request(warp, reads.at.data(), reading, bytes, false);
  return true;
}

bool commit_copies(Warp& warp, const Op& /*op*/, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) { ++warp.groups[static_cast<std::size_t>(lane)]; });
  return true;
}

bool wait_for_copies(Warp& warp, const Op& op, std::uint32_t lanes) {
  std::deque<Warp::Copy> left;
  for (Warp::Copy& copy : warp.copies) {
    const std::uint32_t committed = warp.groups[static_cast<std::size_t>(copy.lane)];
    const bool all = op.number < 0;
    const bool waited =
        (lanes >> copy.lane & 1U) != 0 && (all || copy.group + static_cast<std::uint32_t>(op.number) < committed);
    if (!waited) {
      left.push_back(copy);
      continue;
    }
    finish(warp, copy);
    const Access now = warp.access_of(*copy.op, copy.lane, Proxy::generic);
    copy.block->shadow.for_cells(copy.to, copy.bytes, [&](Shadow::Cell& cell) { cell.writer = now; });
  }
  warp.copies = std::move(left);
  return true;
}

bool prefetch(Warp& /*warp*/, const Op& /*op*/, std::uint32_t /*lanes*/) {
  return true;
}

// Modifiers that loads, stores and atomics share.
void take_modifiers(Op& op, const std::vector<std::string>& parts) {
  for (std::size_t i = 1; i + 1 < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (part == "global" || part == "shared" || part == "local" || part == "param" || part == "const") {
      op.space = part == "global"   ? Space::global
                 : part == "shared" ? Space::shared
                 : part == "local"  ? Space::local
                 : part == "param"  ? Space::param
                                    : Space::constant;
    } else if (part == "shared::cta" || part == "shared::cluster") {
      op.space = Space::shared;
    } else if (part == "param::entry") {
      op.space = Space::param;
    } else if (part == "relaxed" || part == "volatile") {
      op.order = Order::relaxed;
      if (part == "volatile") op.scope = Scope::system;
    } else if (part == "acquire") {
      op.order = Order::acquire;
    } else if (part == "release") {
      op.order = Order::release;
    } else if (part == "acq_rel") {
      op.order = Order::acq_rel;
    } else if (part == "cta") {
      op.scope = Scope::block;
    } else if (part == "cluster") {
      op.scope = Scope::cluster;
    } else if (part == "gpu") {
      op.scope = Scope::device;
    } else if (part == "sys") {
      op.scope = Scope::system;
    } else if (part == "v2" || part == "v4" || part == "v8") {
      op.number = part[1] - '0';
    }
  }
}

std::vector<Slot> slots_of(Program& program, const Operand& operand, Type type) {
  std::vector<Slot> slots;
  if (operand.kind == Operand::Kind::vector) {
    for (const Operand& part : operand.parts) slots.push_back(program.value_of(part, type));
  } else if (operand.kind != Operand::Kind::sink) {
    slots.push_back(program.value_of(operand, type));
  }
  return slots;
}

bool decode_load(Program& program, Op& op) {
  const auto& operands = op.text->operands;
  op.to = slots_of(program, operands[0], op.type);
  op.from = {program.address_of(operands[1])};
  op.offset = operands[1].offset;
  // Parameters are addressed by name from 0, or by a register that holds such an address.
  op.run = load;
  return true;
}

bool decode_store(Program& program, Op& op) {
  const auto& operands = op.text->operands;
  op.from = {program.address_of(operands[0])};
  op.offset = operands[0].offset;
  for (const Slot& slot : slots_of(program, operands[1], op.type)) op.from.push_back(slot);
  op.run = store;
  return true;
}

bool decode_atomic(Program& program, Op& op, const std::vector<std::string>& parts) {
  const auto& operands = op.text->operands;
  constexpr std::pair<std::string_view, Atomic> kNames[] = {
      {"add", Atomic::add},     {"exch", Atomic::exch},   {"max", Atomic::max},
      {"min", Atomic::min},     {"and", Atomic::bit_and}, {"or", Atomic::bit_or},
      {"xor", Atomic::bit_xor}, {"cas", Atomic::cas},     {"inc", Atomic::inc}};
  bool found = false;
  for (const auto& [name, how] : kNames) {
    if (std::find(parts.begin(), parts.end(), name) == parts.end()) continue;
    op.detail = static_cast<int>(how);
    found = true;
  }
  if (!found) return false;
  const bool is_red = parts[0] == "red";
  if (!is_red) op.to = slots_of(program, operands[0], op.type);
  const std::size_t at = is_red ? 0 : 1;
  op.from = {program.address_of(operands[at])};
  op.offset = operands[at].offset;
  op.number = std::max(1, op.number);
  for (std::size_t i = at + 1; i < operands.size(); ++i) {
    for (const Slot& slot : slots_of(program, operands[i], op.type)) op.from.push_back(slot);
  }
  if (op.order == Order::weak) op.order = Order::relaxed;  // the default of atomics
  if (op.scope == Scope::none) op.scope = Scope::device;
  op.run = atomic;
  return true;
}

bool decode_copy(Program& program, Op& op, const std::vector<std::string>& parts) {
  const auto& operands = op.text->operands;
  op.work = Work::memory;
  if (parts[2] == "commit_group") {
    op.run = commit_copies;
    return true;
  }
  if (parts[2] == "wait_group" || parts[2] == "wait_all") {
    op.number = parts[2] == "wait_all" ? -1 : static_cast<int>(operands[0].bits);
    op.run = wait_for_copies;
    return true;
  }
  if (parts[2] != "ca" && parts[2] != "cg") return false;
  op.from = {program.address_of(operands[0]), program.address_of(operands[1])};
  op.offset = operands[0].offset;
  op.detail = static_cast<int>(operands[1].offset);
  op.number = static_cast<int>(operands[2].bits);
  if (operands.size() > 3) op.from.push_back(program.value_of(operands[3], Type::u32));
  op.run = copy_async;
  return true;
}

}  // namespace

bool decode_memory(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  const std::string& name = parts[0];
  op.type = type_named(parts.back());
  op.space = Space::generic;
  op.number = 0;
  take_modifiers(op, parts);
  op.work = Work::memory;
  if (name == "ld" || name == "ldu") return decode_load(program, op);
  if (name == "st") return decode_store(program, op);
  if (name == "atom" || name == "red") return decode_atomic(program, op, parts);
  if (name == "cvta") {
    op.work = Work::integer;
    op.detail = parts[1] == "to" ? 1 : 0;
    op.to = {program.slot_of(op.text->operands[0].reg)};
    op.from = {program.value_of(op.text->operands[1], Type::u64)};
    op.run = to_generic;
    return true;
  }
  if (name == "mapa") {
    op.work = Work::integer;
    op.to = {program.slot_of(op.text->operands[0].reg)};
    op.from = {program.value_of(op.text->operands[1], op.to[0].bytes == 8 ? Type::u64 : Type::u32),
               program.value_of(op.text->operands[2], Type::u32)};
    op.run = map_to_rank;
    return true;
  }
  if (name == "cp" && parts[1] == "async") return parts[2] != "bulk" && decode_copy(program, op, parts);
  if (name == "prefetch" || name == "prefetchu") {
    op.run = prefetch;
    return true;
  }
  return false;
}

}  // namespace lockstep::ptx
