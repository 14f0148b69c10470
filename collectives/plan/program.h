// A Program: a Plan prepared for ranks that can access each other's memory.
//
// Sends and receives are gone. What is left are passes over memory (one or several sources, possibly of other ranks,
// combined into one destination) and waits. Each lane of each rank counts the instructions that it has done; a wait
// names a lane and the count that it must have reached. So the only kind of synchronization is a counter that has
// reached a value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::plan {

// A place in a rank's memory. A source's data is valid once `lane` of `rank` has done `instructions`; 0: from the
// start.
struct Place {
  int rank;
  Buffer buffer;
  std::int64_t offset_bytes;
  int lane = 0;
  std::uint32_t instructions = 0;
};

// Waits until lane `lane` of `rank` has done `instructions` of its instructions; 0: until the rank has entered the
// collective.
struct Wait {
  int rank;
  int lane;
  std::uint32_t instructions;
};

// Each destination = source (+) source (+) ..., `count` elements; with one source, a copy. Without a destination it is
// only a wait: the source's rank has stored its result here.
struct Instruction {
  std::uint32_t first_wait;
  std::uint32_t num_waits;
  std::uint32_t first_source;
  std::uint32_t num_sources;
  std::uint32_t first_destination;
  std::uint32_t num_destinations;
  std::int64_t count;  // elements
  bool completes;      // the result has the contribution of every rank: an average divides here
  bool awaited;        // another lane waits for this instruction: its counter must be updated at once
};

struct LaneProgram {
  bool entry_awaited = false;  // another rank waits for this rank's entry
  std::vector<Instruction> instructions;
  std::vector<Wait> waits;
  std::vector<Place> sources;
  std::vector<Place> destinations;

  std::span<const Wait> waits_of(const Instruction& i) const { return {waits.data() + i.first_wait, i.num_waits}; }
  std::span<const Place> sources_of(const Instruction& i) const {
    return {sources.data() + i.first_source, i.num_sources};
  }
  std::span<const Place> destinations_of(const Instruction& i) const {
    return {destinations.data() + i.first_destination, i.num_destinations};
  }
};

struct RankProgram {
  std::vector<LaneProgram> lanes;
  std::vector<Wait> exit_waits;  // until no rank reads or writes this rank's input and output any more
};

struct Program {
  int num_ranks = 0;
  int num_lanes = 0;
  std::int64_t scratch_bytes = 0;  // per rank
  std::vector<RankProgram> ranks;  // [rank]
};

// Runs only the waits. Returns nothing if every rank ends, else a text that names a waiting lane and its wait.
std::optional<std::string> find_deadlock(const Program& program);

}  // namespace lockstep::plan
