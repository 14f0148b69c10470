// A warp's accesses: where an address lies, whether it may be read, and what happens before what (PTX ISA 9.0, chapter
// 8, "Memory Consistency Model").
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "testing/ptx/machine.h"

namespace lockstep::ptx {
namespace {

const char* name_of(Space space) {
  switch (space) {
    case Space::global:
      return "global";
    case Space::shared:
      return "shared";
    case Space::local:
      return "local";
    case Space::param:
      return "parameter";
    default:
      return "generic";
  }
}

// Whether a release or strong access with this scope by a block includes another block.
bool includes(Scope scope, std::int32_t a_block, const Block& b) {
  switch (scope) {
    case Scope::none:
      return false;
    case Scope::block:
      return a_block == b.id;
    case Scope::cluster:
      return a_block == b.id ||
             std::any_of(b.cluster.begin(), b.cluster.end(), [&](const Block* other) { return other->id == a_block; });
    default:
      return true;  // one device, or all of them
  }
}

}  // namespace

std::uint64_t Warp::address(const Op& op, Slot base, int lane) const {
  std::uint64_t at = bits(base, lane) + static_cast<std::uint64_t>(op.offset);
  if (base.bytes == 4 || op.space == Space::shared) at &= 0xffffffffU;
  return at;
}

Warp::Place Warp::locate(Space space, std::uint64_t address, std::size_t bytes, int lane) {
  if (space == Space::generic || space == Space::local) {
    const std::uint64_t window = address & kWindowMask;
    if (window == kSharedWindow) space = Space::shared;
    if (window == kLocalWindow) space = Space::local;
    if (window == kParamWindow) space = Space::param;
    if (space == Space::generic) space = Space::global;
  }
  if (address % bytes != 0) {
    fault(fmt::format("lane {} accesses {} bytes of {} memory at {:#x}, which is not a multiple of {}", lane, bytes,
                      name_of(space), address, bytes));
  }
  const auto outside = [&](std::size_t at, std::size_t size) {
    if (at + bytes > size) {
      fault(fmt::format("lane {} accesses {} bytes at offset {} of {} memory, which has {} bytes", lane, bytes, at,
                        name_of(space), size));
    }
  };
  switch (space) {
    case Space::shared: {
      const auto rank = static_cast<std::uint32_t>(address) >> kRankShift;
      const std::size_t at = address & ((1U << kRankShift) - 1);
      if (rank > block_.cluster.size())
        fault(fmt::format("lane {}: shared address {:#x} names no block", lane, address));
      Block& block = rank == 0 ? block_ : *block_.cluster[rank - 1];
      if (&block != &block_ && block.has_ended()) {
        fault(fmt::format("lane {} accesses shared memory of block {}, which has ended", lane, block.number));
      }
      outside(at, block.shared.size());
      return {&block.shared[at], &block.shadow, at, &block, nullptr, space};
    }
    case Space::local: {
      const std::size_t size = block_.launch.program->local_bytes();
      const std::size_t at = address & ~kWindowMask;
      outside(at, size);
      return {&local[static_cast<std::size_t>(lane) * size + at], nullptr, 0, nullptr, nullptr, space};
    }
    case Space::param: {
      auto& parameters = block_.launch.launch.parameters;
      const std::size_t at = address & ~kWindowMask;
      outside(at, parameters.size());
      return {&parameters[at], nullptr, 0, nullptr, nullptr, space};
    }
    default: {
      Allocation* const found = machine().memory().find(address, bytes);
      if (found == nullptr) {
        fault(fmt::format("lane {} accesses {} bytes of global memory at {:#x}, which no allocation has", lane, bytes,
                          address));
      }
      const std::size_t at = address - reinterpret_cast<std::uintptr_t>(found->begin);
      return {found->begin + at, &found->shadow, at, nullptr, found, Space::global};
    }
  }
}

Access Warp::access_of(const Op& op, int lane, Proxy proxy) const {
  Access access;
  access.warp = id_;
  access.time = time_;
  access.line = static_cast<std::uint32_t>(op.text->line) & 0xfffffU;
  access.lane = static_cast<std::uint32_t>(lane) & 31U;
  access.is_strong = op.order != Order::weak;
  access.is_async = proxy == Proxy::async;
  access.scope = static_cast<std::uint32_t>(op.scope) & 7U;
  return access;
}

bool Warp::is_ordered(const Access& earlier, int lane, Proxy proxy) const {
  const auto earlier_lane = static_cast<std::uint32_t>(earlier.lane);
  const Machine::Owner owner = machine().owner_of(earlier.warp);
  if (owner.launch != block_.launch.id)
    return block_.launch.concurrent.count(owner.launch) == 0 ||
           view_.all.of(earlier.warp).covers(earlier.time, earlier_lane);
  if (proxy == Proxy::async && earlier.is_async == 0)
    return view_.async.of(earlier.warp).covers(earlier.time, earlier_lane);
  if (earlier.warp == id_ && (static_cast<int>(earlier.lane) == lane || earlier.time < met_)) return true;
  return view_.all.of(earlier.warp).covers(earlier.time, earlier_lane);
}

namespace {

std::string text_of(const Machine& machine, const Access& access) {
  return fmt::format("lane {} of warp {} of block {} (PTX line {}{})", static_cast<int>(access.lane),
                     machine.owner_of(access.warp).warp, machine.owner_of(access.warp).block_number,
                     static_cast<int>(access.line), access.is_async != 0 ? ", asynchronous" : "");
}

}  // namespace

void Warp::on_read(const Place& place, std::size_t bytes, int lane, const Op& op, Proxy proxy) {
  if (place.shadow == nullptr || !machine().options().check_races) return;
  const Access mine = access_of(op, lane, proxy);
  place.shadow->for_cells(place.offset, bytes, [&](Shadow::Cell& cell) {
    if (cell.writer.is_in_flight != 0) {
      fault(fmt::format("lane {} reads {} memory that an asynchronous copy may still write: {}", lane,
                        name_of(place.space), text_of(machine(), cell.writer)));
    }
    if (cell.writer.warp != 0) check_pair(cell.writer, lane, op, proxy, "reads", "wrote", place.space);
    for (Access& reader : cell.readers) {
      if (reader.warp == 0 ||
          (reader.warp == mine.warp && reader.lane == mine.lane && reader.is_async == mine.is_async)) {
        reader = mine;
        return;
      }
    }
    cell.readers[cell.next_reader++ % cell.readers.size()] = mine;
  });
}

void Warp::on_write(const Place& place, std::size_t bytes, int lane, const Op& op, Proxy proxy) {
  if (place.shadow == nullptr) return;
  if (machine().options().check_races) {
    const Access mine = access_of(op, lane, proxy);
    place.shadow->for_cells(place.offset, bytes, [&](Shadow::Cell& cell) {
      if (cell.writer.is_in_flight != 0) {
        fault(fmt::format("lane {} writes {} memory that an asynchronous copy may still write: {}", lane,
                          name_of(place.space), text_of(machine(), cell.writer)));
      }
      if (cell.writer.warp != 0) check_pair(cell.writer, lane, op, proxy, "writes", "wrote", place.space);
      for (Access& reader : cell.readers) {
        // A generic read before an asynchronous write needs order, and no fence between proxies.
        if (reader.warp != 0) check_pair(reader, lane, op, Proxy::generic, "writes", "read", place.space);
        reader = {};
      }
      cell.writer = mine;
    });
  }
  place.shadow->set_initialized(place.offset, bytes);
}

void Warp::check_pair(const Access& earlier, int lane, const Op& op, Proxy proxy, const char* does, const char* did,
                      Space space) const {
  if (is_ordered(earlier, lane, proxy)) return;
  if (earlier.is_strong != 0 && op.order != Order::weak) {  // morally strong if each scope includes the other
    const std::int32_t its_block = machine().owner_of(earlier.warp).block;
    if (includes(static_cast<Scope>(earlier.scope), its_block, block_) && includes(op.scope, its_block, block_)) return;
  }
  fault(fmt::format("lane {} {} {} memory that {} {} without order between them", lane, does, name_of(space),
                    text_of(machine(), earlier), did));
}

View Warp::released(std::uint32_t lanes) {
  View view = view_;
  view.all.join(id_, Epoch{.all_before = met_, .until = time_, .lanes = lanes});
  ++time_;
  return view;
}

void Warp::strong_store(const Place& place, const Op& op, std::uint32_t lanes, bool keeps_earlier) {
  auto& released_at =
      place.global != nullptr ? place.global->released[place.offset] : place.block->released[place.offset];
  if (!keeps_earlier) released_at.clear();
  if (op.order == Order::release || op.order == Order::acq_rel) {
    released_at.push_back({released(lanes), op.scope, block_.id});
  } else if (fenced_.scope != Scope::none) {
    released_at.push_back({fenced_.view, std::min(fenced_.scope, op.scope), block_.id});
  }
}

void Warp::strong_load(const Place& place, const Op& op) {
  auto& all = place.global != nullptr ? place.global->released : place.block->released;
  const auto found = all.find(place.offset);
  if (found == all.end()) return;
  for (const Allocation::Release& release : found->second) {
    if (!includes(release.scope, release.block, block_)) continue;
    if (op.order == Order::acquire || op.order == Order::acq_rel) {
      if (includes(op.scope, release.block, block_)) acquire(release.view);
    } else {
      seen_.push_back(release);
    }
  }
}

void Warp::fence(Scope scope, std::uint32_t lanes) {
  for (const Allocation::Release& release : seen_) {
    if (includes(scope, release.block, block_)) acquire(release.view);
  }
  seen_.clear();
  fenced_ = {.view = released(lanes), .scope = scope};
}

void Warp::fence_proxy(std::uint32_t lanes) {
  view_.async.join(view_.all);
  view_.async.join(id_, Epoch{.all_before = met_, .until = time_, .lanes = lanes});
  ++time_;
}

}  // namespace lockstep::ptx
