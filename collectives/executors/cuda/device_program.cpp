#include "collectives/executors/cuda/device_program.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "collectives/verify.h"
#include "core/error.h"

namespace lockstep::executors::cuda {
namespace {

constexpr std::size_t kHeadBytes = 128;
static_assert(sizeof(BoardHead) <= kHeadBytes);

struct Offsets {
  std::size_t bases;
  std::size_t done;
  std::size_t troubles;
  std::size_t end;
};

Offsets offsets_of(int num_ranks) {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const std::size_t bases = kHeadBytes + ranks * sizeof(std::uint64_t);
  const std::size_t done = bases + 2 * ranks * sizeof(CallBases);
  const std::size_t troubles = done + ranks * kMostSlots * sizeof(std::uint64_t);
  return {bases, done, troubles, troubles + ranks * sizeof(Trouble)};
}

}  // namespace

std::size_t board_bytes(int num_ranks) {
  return offsets_of(num_ranks).end;
}

BoardView board_at(std::byte* memory, int num_ranks) {
  const Offsets offsets = offsets_of(num_ranks);
  return {.head = reinterpret_cast<BoardHead*>(memory),
          .troubles = reinterpret_cast<Trouble*>(memory + offsets.troubles),
          .entered = reinterpret_cast<std::uint64_t*>(memory + kHeadBytes),
          .bases = reinterpret_cast<CallBases*>(memory + offsets.bases),
          .done = reinterpret_cast<std::uint64_t*>(memory + offsets.done),
          .scratch = {nullptr, nullptr},
          .packets = {nullptr, nullptr}};
}

namespace {

using collectives::Operation;
using plan::Instruction;
using plan::LaneProgram;
using plan::Program;
using plan::RankAddress;
using plan::Wait;

// A range of a rank's memory that a lane has accessed.
struct Touched {
  int rank;
  int memory;  // ranges of different memories do not overlap
  std::int64_t begin;
  std::int64_t end;
  bool written;
};

// In place, input and output are one buffer.
Touched touched_at(const Operation& operation, int num_ranks, const RankAddress& p, std::int64_t size_bytes,
                   bool written) {
  Touched touched{p.rank, static_cast<int>(p.buffer), p.offset_bytes, 0, written};
  if (operation.in_place && p.buffer != plan::Buffer::scratch) {
    const auto layout = collectives::in_place_layout(operation, num_ranks, p.rank);
    touched.memory = static_cast<int>(plan::Buffer::output);
    touched.begin += p.buffer == plan::Buffer::input ? layout.input_at : layout.output_at;
  }
  touched.end = touched.begin + size_bytes;
  return touched;
}

std::vector<Touched> touched_by(const LaneProgram& lane, const Instruction& instruction, const Operation& operation,
                                int num_ranks) {
  const std::int64_t size_bytes = instruction.count * static_cast<std::int64_t>(core::size_of(operation.dtype));
  std::vector<Touched> all;
  const auto add = [&](std::span<const RankAddress> places, bool written) {
    for (const RankAddress& p : places) all.push_back(touched_at(operation, num_ranks, p, size_bytes, written));
  };
  if (instruction.num_destinations > 0) {
    add(lane.sources_of(instruction), false);
    add(lane.destinations_of(instruction), true);
  }
  return all;
}

// Ranges that a lane's blocks have accessed in slices. Equal ranges are cut into equal slices, so that each block only
// depends on itself; if other ranges overlap and one is written, the blocks must synchronize.
class TouchedRanges {
 public:
  bool blocks_meet(const Touched& next) const {
    const auto found = ranges_.find({next.rank, next.memory});
    if (found == ranges_.end()) return false;
    const auto& [ranges, longest] = found->second;
    for (auto at = ranges.lower_bound({next.begin - longest, 0}); at != ranges.end(); ++at) {
      const auto& [range, written] = *at;
      if (range.first >= next.end) break;
      const bool equal = range == std::pair{next.begin, next.end};
      if (!equal && range.second > next.begin && (written || next.written)) return true;
    }
    return false;
  }
  void add(const Touched& touched) {
    auto& [ranges, longest] = ranges_[{touched.rank, touched.memory}];
    ranges[{touched.begin, touched.end}] |= touched.written;
    longest = std::max(longest, touched.end - touched.begin);
  }
  void clear() { ranges_.clear(); }

 private:
  struct OfOneMemory {
    std::map<std::pair<std::int64_t, std::int64_t>, bool> ranges;  // begin, end -> written
    // an overlapping range begins no earlier than this before
    std::int64_t longest = 0;
  };
  std::map<std::pair<int, int>, OfOneMemory> ranges_;
};

// [instruction] true if the lane has to wait for all of its own blocks before it.
std::vector<bool> self_waits(const LaneProgram& lane, const Operation& operation, int num_ranks) {
  std::vector<bool> waits(lane.instructions.size());
  TouchedRanges since;  // accesses since the last such wait
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const std::vector<Touched> now = touched_by(lane, lane.instructions[i], operation, num_ranks);
    waits[i] = std::any_of(now.begin(), now.end(), [&](const Touched& next) { return since.blocks_meet(next); });
    if (waits[i]) since.clear();
    for (const Touched& touched : now) since.add(touched);
  }
  return waits;
}

std::vector<DeviceWait> waits_of(const LaneProgram& lane, std::size_t index, int rank, int lane_index, bool self) {
  std::vector<DeviceWait> waits;
  for (const Wait& w : lane.waits_of(lane.instructions[index])) waits.push_back({w.rank, w.lane, w.instructions});
  if (self) waits.push_back({rank, lane_index, static_cast<std::uint32_t>(index)});
  return waits;
}

// (rank, lane, instructions done) -> rank that waits for it.
using Listeners = std::set<std::tuple<std::int32_t, std::int32_t, std::uint32_t, std::int32_t>>;

// All waits for `rank`, by any rank. The waiting rank must be signalled, so the rank's own part of the program is not
// enough.
Listeners listeners_of(const Program& program, const Operation& operation, int rank, int blocks) {
  Listeners listeners;
  const auto note = [&](const DeviceWait& w, int waiting) {
    if (w.rank == rank && w.instructions > 0) listeners.insert({w.rank, w.lane, w.instructions, waiting});
  };
  for (int r = 0; r < program.num_ranks; ++r) {
    const plan::RankProgram& its = program.ranks[static_cast<std::size_t>(r)];
    for (std::size_t l = 0; l < its.lanes.size(); ++l) {
      const auto self = r == rank && blocks > 1 ? self_waits(its.lanes[l], operation, program.num_ranks)
                                                : std::vector<bool>(its.lanes[l].instructions.size());
      for (std::size_t i = 0; i < self.size(); ++i) {
        for (const DeviceWait& w : waits_of(its.lanes[l], i, r, static_cast<int>(l), self[i])) note(w, r);
      }
    }
    for (const Wait& w : its.exit_waits) note({w.rank, w.lane, w.instructions}, r);
  }
  return listeners;
}

template <class T>
std::uint32_t append(std::vector<T>& all, const std::vector<T>& some) {
  const auto first = static_cast<std::uint32_t>(all.size());
  all.insert(all.end(), some.begin(), some.end());
  return first;
}

std::vector<DeviceAddress> device_addresses(std::span<const RankAddress> places) {
  std::vector<DeviceAddress> all;
  for (const RankAddress& p : places) {
    all.push_back({p.offset_bytes, p.rank, static_cast<std::int32_t>(p.buffer), p.rank, p.instructions});
  }
  return all;
}

// Operands of a device instruction, and the ranks that it waits for and signals.
struct Parts {
  std::vector<DeviceWait> waits;
  std::vector<DeviceAddress> sources;
  std::vector<DeviceAddress> destinations;
};

Parts parts_of(const LaneProgram& lane, std::size_t index, int rank, int lane_index, bool self) {
  const Instruction& instruction = lane.instructions[index];
  const bool moves = instruction.num_destinations > 0;
  return {.waits = waits_of(lane, index, rank, lane_index, self),
          .sources = moves ? device_addresses(lane.sources_of(instruction)) : std::vector<DeviceAddress>{},
          .destinations = device_addresses(lane.destinations_of(instruction))};
}

std::vector<std::int32_t> signalled_by(const Listeners& listeners, int rank, int lane, std::uint32_t done) {
  std::vector<std::int32_t> signalled;
  for (auto at = listeners.lower_bound({rank, lane, done, -1}); at != listeners.end(); ++at) {
    if (std::get<1>(*at) != lane || std::get<2>(*at) != done) break;
    signalled.push_back(std::get<3>(*at));
  }
  return signalled;
}

void append_instruction(DeviceProgram& compiled, const Instruction& instruction, const Parts& parts,
                        const std::vector<std::int32_t>& signalled) {
  compiled.instructions.push_back({.count = instruction.count,
                                   .first_wait = append(compiled.waits, parts.waits),
                                   .num_waits = static_cast<std::uint32_t>(parts.waits.size()),
                                   .first_source = append(compiled.sources, parts.sources),
                                   .num_sources = static_cast<std::uint32_t>(parts.sources.size()),
                                   .first_destination = append(compiled.destinations, parts.destinations),
                                   .num_destinations = static_cast<std::uint32_t>(parts.destinations.size()),
                                   .first_listener = append(compiled.listeners, signalled),
                                   .num_listeners = static_cast<std::uint32_t>(signalled.size()),
                                   .completes = instruction.completes ? 1U : 0U});
  compiled.most_places = std::max({compiled.most_places, static_cast<std::uint32_t>(parts.sources.size()),
                                   static_cast<std::uint32_t>(parts.destinations.size())});
}

// change(lane, index, parts) may change an instruction before it is appended.
template <class Change>
DeviceProgram made_program(const Program& program, const Operation& operation, int rank, int blocks,
                           const Listeners& listeners, const Change& change) {
  const plan::RankProgram& mine = program.ranks[static_cast<std::size_t>(rank)];
  DeviceProgram compiled;
  for (std::size_t l = 0; l < mine.lanes.size(); ++l) {
    const LaneProgram& lane = mine.lanes[l];
    const auto lane_index = static_cast<int>(l);
    const auto count = static_cast<std::uint32_t>(lane.instructions.size());
    LOCKSTEP_CHECK(count < 1U << kInstructionBits, "a lane of more instructions than are counted");
    compiled.lanes.push_back({static_cast<std::uint32_t>(compiled.instructions.size()), count});
    const auto self = blocks > 1 ? self_waits(lane, operation, program.num_ranks) : std::vector<bool>(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      Parts parts = parts_of(lane, i, rank, lane_index, self[i]);
      change(lane_index, i, parts);
      append_instruction(compiled, lane.instructions[i], parts, signalled_by(listeners, rank, lane_index, i + 1));
    }
  }
  return compiled;
}

}  // namespace

DeviceProgram make_device_program(const Program& program, const Operation& operation, int rank, int blocks) {
  DeviceProgram compiled =
      made_program(program, operation, rank, blocks, listeners_of(program, operation, rank, blocks),
                   [](int, std::uint32_t, Parts&) {});
  for (const Wait& w : program.ranks[static_cast<std::size_t>(rank)].exit_waits) {
    compiled.exit_waits.push_back({w.rank, w.lane, w.instructions});
  }
  return compiled;
}

namespace {

// (rank, lane, instruction) -> places in other ranks' packet memory that it writes its whole result to.
using Pushes = std::map<std::tuple<int, int, std::uint32_t>, std::vector<DeviceAddress>>;
// (rank, lane, instruction, source) -> offset of its packets.
using Arrivals = std::map<std::tuple<int, int, std::uint32_t, std::uint32_t>, std::int64_t>;

struct Packets {
  Pushes pushes;
  Arrivals arrivals;
  std::int64_t most_bytes = 0;  // per rank
};

// True if the instruction produces exactly this piece of its rank's scratch.
bool makes(const LaneProgram& lane, const Instruction& maker, const RankAddress& piece, std::int64_t count) {
  if (maker.count != count) return false;
  const auto destinations = lane.destinations_of(maker);
  return std::any_of(destinations.begin(), destinations.end(), [&](const RankAddress& d) {
    return d.rank == piece.rank && d.buffer == piece.buffer && d.offset_bytes == piece.offset_bytes;
  });
}

// Assigns every source in another rank's scratch an offset in the reader's packet memory. False if a source lies
// elsewhere.
bool place_packets(const Program& program, const Operation& operation, int reader, Packets& packets) {
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(operation.dtype));
  std::int64_t bytes = 0;
  const plan::RankProgram& its = program.ranks[static_cast<std::size_t>(reader)];
  for (std::size_t l = 0; l < its.lanes.size(); ++l) {
    const LaneProgram& lane = its.lanes[l];
    for (std::uint32_t i = 0; i < lane.instructions.size(); ++i) {
      const Instruction& instruction = lane.instructions[i];
      for (const RankAddress& d : lane.destinations_of(instruction)) {
        if (d.rank != reader) return false;
      }
      const auto sources = lane.sources_of(instruction);
      for (std::uint32_t s = 0; s < sources.size(); ++s) {
        const RankAddress& source = sources[s];
        if (source.rank == reader) continue;
        if (source.buffer != plan::Buffer::scratch || source.instructions == 0 || instruction.num_destinations == 0)
          return false;
        const LaneProgram& makers =
            program.ranks[static_cast<std::size_t>(source.rank)].lanes[static_cast<std::size_t>(source.lane)];
        const std::uint32_t maker = source.instructions - 1;
        if (!makes(makers, makers.instructions[maker], source, instruction.count)) return false;
        packets.pushes[{source.rank, source.lane, maker}].push_back(
            {bytes, reader, kPackets, source.rank, source.instructions});
        packets.arrivals[{reader, static_cast<int>(l), i, s}] = bytes;
        const std::int64_t carried = instruction.count * elem_bytes;
        bytes += (carried + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
      }
    }
  }
  packets.most_bytes = std::max(packets.most_bytes, 2 * bytes);  // each packet also holds the call's number
  return true;
}

// Only the rank's own lanes wait by counters: all data from other ranks is signalled by packets.
Listeners own_listeners(const Program& program, const Operation& operation, int rank, int blocks) {
  Listeners all = listeners_of(program, operation, rank, blocks);
  for (auto at = all.begin(); at != all.end();) at = std::get<3>(*at) == rank ? std::next(at) : all.erase(at);
  return all;
}

}  // namespace

std::optional<PacketProgram> make_packet_program(const Program& program, const Operation& operation, int rank,
                                                 int blocks) {
  Packets packets;
  for (int reader = 0; reader < program.num_ranks; ++reader) {
    if (!place_packets(program, operation, reader, packets)) return std::nullopt;
  }
  const auto change = [&](int lane, std::uint32_t index, Parts& parts) {
    std::erase_if(parts.waits, [&](const DeviceWait& w) { return w.rank != rank; });
    for (std::uint32_t s = 0; s < parts.sources.size(); ++s) {
      const auto at = packets.arrivals.find({rank, lane, index, s});
      if (at == packets.arrivals.end()) continue;
      const DeviceAddress& source = parts.sources[s];
      parts.sources[s] = {at->second, rank, kPackets, source.from, source.made};
    }
    const auto pushed = packets.pushes.find({rank, lane, index});
    if (pushed != packets.pushes.end()) append(parts.destinations, pushed->second);
  };
  return PacketProgram{.program = made_program(program, operation, rank, blocks,
                                               own_listeners(program, operation, rank, blocks), change),
                       .packet_bytes = packets.most_bytes};
}

namespace {

constexpr std::size_t kAlignment = 16;

template <class T>
std::size_t padded_bytes(const std::vector<T>& array) {
  return (array.size() * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

ProgramImage image_of(const DeviceProgram& program) {
  ProgramImage image{.bytes = {}, .at = {}};
  const auto place = [&]<class T>(const std::vector<T>& array, std::uint32_t& where) {
    const std::size_t at = image.bytes.size();
    image.bytes.resize(at + padded_bytes(array));
    if (!array.empty()) std::memcpy(image.bytes.data() + at, array.data(), array.size() * sizeof(T));
    where = static_cast<std::uint32_t>(at);
  };
  place(program.lanes, image.at.lanes);
  place(program.instructions, image.at.instructions);
  place(program.waits, image.at.waits);
  place(program.sources, image.at.sources);
  place(program.destinations, image.at.destinations);
  place(program.listeners, image.at.listeners);
  place(program.exit_waits, image.at.exit_waits);
  LOCKSTEP_CHECK(image.bytes.size() <= std::numeric_limits<std::uint32_t>::max(), "a program of more than 4 GiB");
  image.at.num_exit_waits = static_cast<std::uint32_t>(program.exit_waits.size());
  image.at.size_bytes = static_cast<std::uint32_t>(image.bytes.size());
  return image;
}

}  // namespace lockstep::executors::cuda
